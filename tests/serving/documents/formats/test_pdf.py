"""PDF: the text in its paragraphs, and one clear error for what cannot be read."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.documents.formats import pdf_reader
from serving.documents.formats.registry import FORMATS, read_document, result_name
from serving.errors import RequestError
from tests.serving.documents.shouting import shouted_file

Line = tuple[int, int, int, str]  # from the left, from below, size, text


def pdf(*pages: Sequence[Line], trailer: bytes = b"") -> bytes:
    """A PDF with lines of text in Helvetica."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for lines in pages:
        content = b"".join(
            b"BT /F %d Tf %d %d Td (%s) Tj ET\n" % (size, x, y, text.encode("cp1252"))
            for x, y, size, text in lines
        )
        packed = zlib.compress(content)
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>"
            b"/Contents %d 0 R>>" % (len(objects) + 2),
            b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(packed), packed),
        ]
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(pages), kids)
    data, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj%s endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF" % (size, trailer, len(data))
    return data + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + end


BOOK = pdf(
    [
        (50, 700, 20, "A day out"),
        (50, 660, 10, "Two dogs run in the snow and bark at a cat that looks out of the window."),
        (50, 648, 10, "The cat has seen many dogs and thinks that this is no reason for a conver-"),
        (50, 636, 10, "sation with them. It sleeps."),
        (50, 600, 10, "Bread"),
        (50, 588, 10, "Milk"),
        (50, 576, 10, "A big cake"),
        (50, 500, 10, "The café is at the end of"),
    ],
    [(50, 700, 10, "the road.")],
)


def test_paragraphs(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pdf", tmp_path / "b.txt"
    path.write_bytes(BOOK)

    fragments = shouted_file(path, target)

    assert fragments == [
        "A day out",
        "Two dogs run in the snow and bark at a cat that looks out of the window. The cat has seen"
        " many dogs and thinks that this is no reason for a conversation with them. It sleeps.",
        *("Bread", "Milk", "A big cake", "The café is at the end of the road."),
    ]
    assert target.read_text().startswith("A DAY OUT\n\nTWO DOGS RUN")
    assert "\n\nBREAD\nMILK\nA BIG CAKE\n\nTHE CAFÉ IS" in target.read_text()
    assert result_name("a.PDF") == "a.txt" and FORMATS["txt"].media_type == "text/plain"


@pytest.mark.parametrize(
    ("line", "following", "expected"),
    [
        ("two", "dogs", "two dogs"),
        ("con-", "versation", "conversation"),
        ("con\u00ad", "versation", "conversation"),
        ("the Lyon-", "Paris line", "the Lyon-Paris line"),
        ("5 -", "a", "5 - a"),
        ("犬が", "走る", "犬が走る"),
        ("개가", "달린다", "개가 달린다"),
    ],
)
def test_joined_lines(line: str, following: str, expected: str) -> None:
    assert pdf_reader.joined(line, following) == expected


ENCRYPTED = b"/ID[<00><00>]/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>>" % (
    b"00" * 32,
    b"11" * 32,
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG", "no PDF"),
        (b"%PDF-1.7\n\0\xff\xfe\x80", "is damaged"),
        (BOOK[:400], "is damaged|no text"),
        (pdf([]), "has no text; scanned"),
        (pdf([(50, 700, 10, "12.5")]), "has no text; scanned"),
        (pdf([(50, 700, 10, "secret")], trailer=ENCRYPTED), "is encrypted"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(data)

    with pytest.raises(RequestError, match=message):
        read_document(path, path.name)


def test_a_file_that_asks_for_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(BOOK)
    monkeypatch.setattr(pdf_reader, "MAX_CHARACTERS", 20)

    assert "too much time or memory" in pdf_reader.answer(path)["error"]
