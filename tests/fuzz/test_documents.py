"""Documents and term bases with damage: they are refused by one error, or read and written."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.documents.formats.pdf_reader import answer
from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from serving.glossary_entries import EntriesFormat, Pair, parse_entries
from tests.fuzz.inputs import damaged, fuzz
from tests.serving.documents.formats import test_pdf, test_sdlxliff, test_tmx, test_webvtt
from tests.serving.documents.packages import test_epub, test_idml
from tests.serving.documents.packages.test_office import make_docx, make_odt, make_xlsx
from tests.serving.documents.shouting import shouted
from tests.serving.test_glossary_entries import MARTIF

TEXTS = {
    "html": '<html lang=en><body><p title="a dog">a <b>dog</b> &amp; a cat<br>runs</html>',
    "sdlxliff": test_sdlxliff.FILE % ("", test_sdlxliff.SEGMENTS % ("", "")),
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n- <i>a dog\nruns</i>\n\n2\n",
    "tmx": test_tmx.HEAD % "en" + test_tmx.UNITS + test_tmx.TAIL,
    "vtt": test_webvtt.FILE,
}


def make_epub(path: Path) -> None:
    test_epub.book(path)


def make_idml(path: Path) -> None:
    content = test_idml.text("a dog <?ACE 18?>\u2028runs") + "<Br/>" + test_idml.TABLE
    test_idml.document(path, test_idml.paragraphs(test_idml.run(content)))


ARCHIVES: dict[str, Callable[[Path], None]] = {
    "docx": make_docx,
    "epub": make_epub,
    "idml": make_idml,
    "odt": make_odt,
    "xlsx": make_xlsx,
}


def read_and_write(path: Path) -> None:
    try:
        document = read_document(path, path.name, "en", "fr")
    except RequestError as error:
        assert str(error)
        return
    translations = [shouted(each) for each in document.fragments]
    document.write(translations, path.with_name("written"), "fr")


@pytest.mark.parametrize("extension", TEXTS)
def test_texts(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"a.{extension}"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        read_and_write(path)

    fuzz(damaged(TEXTS[extension].encode()), check)


@pytest.mark.parametrize("extension", ARCHIVES)
def test_archives(tmp_path: Path, extension: str) -> None:
    """Of an archive the bytes are damaged, and the parts with text."""
    path = tmp_path / f"a.{extension}"
    ARCHIVES[extension](path)
    whole = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def check(content: bytes) -> None:
        path.write_bytes(content)
        read_and_write(path)

    def check_with(name: str) -> Callable[[bytes], None]:
        return lambda data: check(_packed(parts | {name: data}))

    fuzz(damaged(whole), check)
    for name in sorted(parts, key=lambda name: len(parts[name]))[-2:]:
        fuzz(damaged(parts[name]), check_with(name))


def _packed(parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def test_pdf_files(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        assert answer(path).keys() in ({"text"}, {"error"})

    fuzz(damaged(test_pdf.BOOK), check)


def test_term_bases() -> None:
    def check(content: bytes) -> None:
        try:
            parse_entries(content.decode(errors="replace"), EntriesFormat.TBX, Pair("en", "fr"))
        except RequestError as error:
            assert str(error)

    fuzz(damaged(MARTIF.encode()), check)
