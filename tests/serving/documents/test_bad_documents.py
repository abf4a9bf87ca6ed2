"""Documents that mean harm, or are not what they say: refused before anything is done with them."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pytest

from serving.documents.formats.registry import FORMATS, read_document
from serving.documents.packages import office
from serving.errors import RequestError, TooLarge
from tests.serving.documents.packages.test_office import make_docx, make_odt, make_xlsx, parts

ENTITY = b'<!DOCTYPE a [<!ENTITY b "boom"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
BOMB = (
    b"<!DOCTYPE a ["
    + b"".join(
        b'<!ENTITY e%d "%s">' % (n, b"&e%d;" % (n - 1) * 10 if n else b"lol") for n in range(20)
    )
    + b"]>"
)
Parts = dict[str, bytes]


def repack(path: Path, change: Callable[[Parts], None]) -> Path:
    """The archive with its parts changed."""
    archive_parts = parts(path)
    change(archive_parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in archive_parts.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def document(tmp_path: Path) -> Path:
    make_docx(tmp_path / "a.docx")
    return tmp_path / "a.docx"


def assert_refused(path: Path, message: str, error: type[Exception] = RequestError) -> None:
    with pytest.raises(error, match=message):
        read_document(path, path.name)


@pytest.mark.parametrize("doctype", [ENTITY, BOMB], ids=["entities", "laughs"])
def test_entities(document: Path, doctype: bytes) -> None:
    def change(archive_parts: Parts) -> None:
        head, _, rest = archive_parts["word/document.xml"].partition(b"?>")
        archive_parts["word/document.xml"] = head + b"?>" + doctype + rest

    assert_refused(repack(document, change), "document type|well-formed")


@pytest.mark.parametrize("doctype", [ENTITY, BOMB], ids=["entities", "laughs"])
def test_entities_in_xliff(tmp_path: Path, doctype: bytes) -> None:
    path = tmp_path / "a.xliff"
    path.write_bytes(doctype + b'<xliff version="1.2"><file>&c;</file></xliff>')

    assert_refused(path, "document type|well-formed")


def with_size(document: Path, number_of_bytes: int) -> Path:
    """Return an archive with an entry that says to unpack to so many bytes; it has 30,000."""
    repack(
        document, lambda archive_parts: archive_parts.update({"word/media/a.bin": bytes(30_000)})
    )
    size = struct.pack("<I", 30_000)
    document.write_bytes(document.read_bytes().replace(size, struct.pack("<I", number_of_bytes)))
    return document


def test_an_archive_that_unpacks_to_too_much(document: Path) -> None:
    path = with_size(document, office.MAX_UNPACKED_BYTES + 1)

    assert_refused(path, "unpacks to more than 256 MiB", TooLarge)


def test_an_archive_that_unpacks_to_many_times_its_size(document: Path) -> None:
    def change(archive_parts: Parts) -> None:
        archive_parts["word/media/a.bin"] = bytes(20 * 2**20)

    assert_refused(repack(document, change), "more than 200 times its size", TooLarge)


def test_an_archive_that_says_less_than_it_holds(document: Path) -> None:
    assert_refused(with_size(document, 1), "no whole ZIP archive")


def test_an_archive_of_too_many_entries(document: Path) -> None:
    def change(archive_parts: Parts) -> None:
        archive_parts.update({f"word/media/{n}": b"" for n in range(office.MAX_ENTRIES)})

    assert_refused(repack(document, change), "at most 10000 entries", TooLarge)


@pytest.mark.parametrize("name", ["../../etc/cron.d/a", "/etc/passwd", "a\\..\\b", "C:/a"])
def test_names_that_lead_out_of_the_archive(document: Path, name: str) -> None:
    assert_refused(
        repack(document, lambda archive_parts: archive_parts.update({name: b""})), "leads out"
    )


@pytest.mark.parametrize("name", ["word/vbaProject.bin", "word/vbaData.xml"])
def test_macros(document: Path, name: str) -> None:
    assert_refused(
        repack(document, lambda archive_parts: archive_parts.update({name: b""})), "macro"
    )


def test_macros_by_their_type(document: Path) -> None:
    def change(archive_parts: Parts) -> None:
        types = archive_parts["[Content_Types].xml"]
        plain = b"vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
        macro = b"vnd.ms-word.document.macroEnabled.main+xml"
        archive_parts["[Content_Types].xml"] = types.replace(plain, macro)

    assert_refused(repack(document, change), "has macros")


@pytest.mark.parametrize("kind", ["attachedTemplate", "oleObject", "frame", "image"])
def test_what_readers_would_load_from_outside(document: Path, kind: str) -> None:
    def change(archive_parts: Parts) -> None:
        relation = (
            b'<Relationship Id="rX" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
            b'relationships/%s" Target="http://evil.example/t" TargetMode="External"/>'
        ) % kind.encode()
        name = "word/_rels/document.xml.rels"
        archive_parts[name] = archive_parts[name].replace(
            b"</Relationships>", relation + b"</Relationships>"
        )

    assert_refused(repack(document, change), "loaded from outside, as")


def test_what_an_odt_would_load_from_outside(tmp_path: Path) -> None:
    make_odt(tmp_path / "a.odt")

    def change(archive_parts: Parts) -> None:
        image = (
            b'<draw:frame xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0">'
            b'<draw:image xmlns:xlink="http://www.w3.org/1999/xlink" '
            b'xlink:href="http://evil.example/a.png"/></draw:frame></text:p>'
        )
        archive_parts["content.xml"] = archive_parts["content.xml"].replace(b"</text:p>", image, 1)

    assert_refused(repack(tmp_path / "a.odt", change), "loaded from outside")


@pytest.mark.parametrize("num_bytes", [10, 1_000, -1])
def test_a_truncated_archive(document: Path, num_bytes: int) -> None:
    document.write_bytes(document.read_bytes()[:num_bytes])

    assert_refused(document, "no whole ZIP archive")


def test_a_damaged_archive(document: Path) -> None:
    data = bytearray(document.read_bytes())
    with zipfile.ZipFile(document) as archive:
        place = archive.getinfo("word/document.xml").header_offset + 200
    data[place : place + 40] = bytes(40)
    document.write_bytes(data)

    assert_refused(document, "no whole ZIP archive")


def test_an_encrypted_archive(document: Path) -> None:
    data = bytearray(document.read_bytes())
    place = data.find(b"PK\x01\x02")
    data[place + 8] |= 1
    document.write_bytes(data)

    assert_refused(document, "is encrypted")


def test_one_kind_of_document_under_the_name_of_another(tmp_path: Path, document: Path) -> None:
    make_xlsx(tmp_path / "book.xlsx")
    (tmp_path / "b.docx").write_bytes((tmp_path / "book.xlsx").read_bytes())
    (tmp_path / "b.odt").write_bytes(document.read_bytes())

    assert_refused(tmp_path / "b.docx", "not what its name says")
    assert_refused(tmp_path / "b.odt", "not what its name says")


@pytest.mark.parametrize("name", [f"a.{extension}" for extension in FORMATS])
@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"%PDF-1.7\n\0\xff\xfe\x80", b"PK\3\4\0\0"]
)
def test_something_else_altogether(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    assert_refused(path, ".")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.srt", b"no times here"),
        ("a.po", b"nothing"),
        ("a.xliff", b"<html/>"),
        ("a.xliff", b"<xliff"),
        ("a.docx", b""),
        ("a.xliff", b"<a>" * 1_000),
    ],
)
def test_text_of_another_kind(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    assert_refused(path, "not|no ")


def test_links_and_local_templates_are_no_harm(document: Path) -> None:
    assert read_document(document, "a.docx").fragments
    assert docx.Document(io.BytesIO(document.read_bytes())).paragraphs


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_a_damaged_archive_that_is_packed_in_another_way(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.odt"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("content.xml", "<a/>" * 100)
    with open(path, "r+b") as file:
        file.seek(30 + len("content.xml") + 12)  # within what is packed, after LZMA's own head
        file.write(b"\xff" * 8)

    assert_refused(path, "is no whole ZIP archive")


def test_an_archive_whose_entries_begin_before_it(tmp_path: Path) -> None:
    make_odt(path := tmp_path / "a.odt")
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    data[end + 16 : end + 20] = struct.pack("<I", 2**31)  # where the list of entries is
    path.write_bytes(data)

    assert_refused(path, "is no whole ZIP archive")


def test_properties_in_a_namespace_that_is_no_address(document: Path) -> None:
    def change(archive_parts: Parts) -> None:
        run = b'<w:r xmlns:z="relative"><w:rPr><z:x/></w:rPr>'
        archive_parts["word/document.xml"] = archive_parts["word/document.xml"].replace(
            b"<w:r>", run
        )

    assert read_document(repack(document, change), "a.docx").fragments
