"""PDF: the text in its paragraphs, and one clear error for what cannot be read."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.documents.formats import pdf_reader
from serving.documents.formats.registry import read_document, result_name
from serving.errors import RequestError
from tests.serving.documents.shouting import shout_file

Line = tuple[int, int, str]  # from below, size, text


def pdf(*pages: Sequence[Line], trailer: bytes = b"") -> bytes:
    """A PDF with lines of text in Helvetica, and no table of its objects: readers find them."""
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    tree = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(pages), kids)
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", tree, font]
    for lines in pages:
        content = b"".join(
            b"BT /F %d Tf 50 %d Td (%s) Tj ET\n" % (size, y, text.encode("cp1252"))
            for y, size, text in lines
        )
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>"
            b"/Contents %d 0 R>>" % (len(objects) + 2),
            b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        ]
    numbered = (b"%d 0 obj%s endobj\n" % pair for pair in enumerate(objects, 1))
    return b"%%PDF-1.4\n%strailer<</Root 1 0 R%s>>\n%%%%EOF" % (b"".join(numbered), trailer)


BOOK = pdf(
    [
        (700, 20, "A day out"),
        (660, 10, "Two dogs run in the snow and bark at a cat that looks out of the window."),
        (648, 10, "The cat has seen many dogs and thinks that this is no reason for a conver-"),
        (636, 10, "sation with them. It sleeps."),
        *((600, 10, "Bread"), (588, 10, "Milk"), (576, 10, "A big cake")),
        (500, 10, "The café is at the end of"),
    ],
    [(700, 10, "the road.")],
)
KEY = b"/ID[<00><00>]/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>>" % (
    *(b"00" * 32, b"11" * 32),
)


def test_paragraphs(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pdf", tmp_path / "b.txt"
    path.write_bytes(BOOK)

    fragments = shout_file(path, target)

    assert fragments == [
        "A day out",
        "Two dogs run in the snow and bark at a cat that looks out of the window. The cat has seen"
        " many dogs and thinks that this is no reason for a conversation with them. It sleeps.",
        *("Bread", "Milk", "A big cake", "The café is at the end of the road."),
    ]
    assert "IT SLEEPS.\n\nBREAD\nMILK\nA BIG CAKE\n\nTHE CAFÉ IS" in target.read_text()
    assert result_name("a.PDF") == "a.txt"


@pytest.mark.parametrize(
    ("line", "following", "expected"),
    [
        ("two", "dogs", "two dogs"),
        ("con-", "versation", "conversation"),
        ("the Lyon-", "Paris line", "the Lyon-Paris line"),
        ("5 -", "a", "5 - a"),
        ("犬が", "走る", "犬が走る"),
        ("개가", "달린다", "개가 달린다"),
    ],
)
def test_joined_lines(line: str, following: str, expected: str) -> None:
    assert pdf_reader.join_lines(line, following) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG", "no PDF"),
        (b"%PDF-1.7\n\0\xff\xfe\x80", "is damaged"),
        (pdf([(700, 10, "12.5")]), "has no text; scanned"),
        (pdf([(700, 10, "secret")], trailer=KEY), "is encrypted"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.pdf").write_bytes(data)

    with pytest.raises(RequestError, match=message):
        read_document(tmp_path / "a.pdf", "a.pdf")


def test_a_file_that_asks_for_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pdf").write_bytes(BOOK)
    monkeypatch.setattr(pdf_reader, "MAX_CHARACTERS", 20)

    assert "too much time or memory" in pdf_reader.extract_text(tmp_path / "a.pdf")["error"]
