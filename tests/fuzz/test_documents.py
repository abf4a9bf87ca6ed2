"""Documents and term bases with damage: they are refused by one error, or read and written."""

import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from serving.documents.formats.pdf_reader import extract_text
from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from serving.glossaries.entries import EntriesFormat, GlossaryPair, parse_entries
from tests.fuzz.inputs import damaged, fuzz
from tests.serving.documents.formats import test_pdf as pdf
from tests.serving.documents.formats import test_sdlxliff as sdlxliff
from tests.serving.documents.formats import test_tmx as tmx
from tests.serving.documents.formats import test_webvtt as webvtt
from tests.serving.documents.packages import test_epub as epub
from tests.serving.documents.packages import test_idml as idml
from tests.serving.documents.packages.test_office import make_docx, parts
from tests.serving.documents.shouting import shout_fragment
from tests.serving.glossaries.test_entries import MARTIF

TEXTS = {
    "html": '<html lang=en><p title="a dog">a <b>dog</b> &amp; a cat<br>runs</html>',
    "sdlxliff": sdlxliff.FILE % ("", "", ""),
    "tmx": tmx.HEAD % "en" + tmx.UNITS + tmx.TAIL,
    "vtt": webvtt.FILE,
}
STORY = idml.paragraph(idml.run("a dog", idml.PAGE, "\u2028runs", idml.END, idml.TABLE))
ARCHIVES: dict[str, Callable[[Path], object]] = {
    "docx": make_docx,
    "epub": epub.book,
    "idml": lambda path: idml.document(path, STORY),
}


def reads(path: Path) -> Callable[[bytes], None]:
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(RequestError):
            document = read_document(path, path.name, "en", "fr")
            texts = [shout_fragment(fragment) for fragment in document.fragments]
            document.write(texts, path.with_name("written"), "fr")

    return check


@pytest.mark.parametrize("extension", TEXTS)
def test_texts(tmp_path: Path, extension: str) -> None:
    fuzz(damaged(TEXTS[extension].encode()), reads(tmp_path / f"a.{extension}"))


@pytest.mark.parametrize("extension", ARCHIVES)
def test_archives(tmp_path: Path, extension: str) -> None:
    """Of an archive the bytes are damaged, and its largest parts."""
    path = tmp_path / f"a.{extension}"
    ARCHIVES[extension](path)
    whole, read = parts(path), reads(path)
    fuzz(damaged(path.read_bytes()), read)

    def with_part(name: str) -> Callable[[bytes], None]:
        def check(content: bytes) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                for each, data in (whole | {name: content}).items():
                    archive.writestr(each, data)
            read(path.read_bytes())

        return check

    for name in sorted(whole, key=lambda name: len(whole[name]))[-2:]:
        fuzz(damaged(whole[name]), with_part(name))


def test_pdf_files(tmp_path: Path) -> None:
    def check(content: bytes) -> None:
        (tmp_path / "a.pdf").write_bytes(content)
        assert extract_text(tmp_path / "a.pdf")

    fuzz(damaged(pdf.BOOK), check)


def test_term_bases() -> None:
    def check(content: bytes) -> None:
        with suppress(RequestError):
            parse_entries(
                content.decode(errors="replace"), EntriesFormat.TBX, GlossaryPair("en", "fr")
            )

    fuzz(damaged(MARTIF.encode()), check)
