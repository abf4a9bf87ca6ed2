"""Books: pages, tables of contents and the title are translated; all else stays."""

import zipfile
from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.packages.test_office import parts
from tests.serving.documents.shouting import shout_file

CONTAINER = '<container><rootfiles><rootfile full-path="O/book.opf"/></rootfiles></container>'
XHTML, NCX = "application/xhtml+xml", "application/x-dtbncx+xml"
PAGE = (
    '<html lang="en"><head><title/><script src="a.js"/></head><p>{}<br/> <em>runs</em></p></html>'
)
# What a book has, and what it has after a translation that shouts.
FILES = {
    "META-INF/container.xml": (CONTAINER, CONTAINER),
    "mimetype": ("application/epub+zip",) * 2,
    "O/book.opf": tuple(
        f'<package xml:lang="{language}"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title><dc:creator>ann</dc:creator><dc:language>{language}"
        f'</dc:language></metadata><manifest><item id="two" href="b.xhtml" media-type="{XHTML}"/>'
        f'<item id="one" href="a%20b.xhtml" media-type="{XHTML}"/><item id="x" href="x.xhtml"'
        f' media-type="{XHTML}"/><item id="ncx" href="toc.ncx" media-type="{NCX}"/></manifest>'
        '<spine><itemref idref="one"/><itemref idref="two"/></spine></package>'
        for language, title in (("en", "a book &amp; more"), ("fr", "A BOOK &amp; MORE"))
    ),
    "O/a b.xhtml": (PAGE.format("a dog"), "<p>A DOG<br/> <em>RUNS</em></p></html>"),
    "O/b.xhtml": (PAGE.format("a cat"), "<p>A CAT<br/> <em>RUNS</em></p></html>"),
    "O/toc.ncx": tuple(
        '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "ncx.dtd"><ncx><docAuthor><text>ann'
        f"</text></docAuthor><navLabel><text>{label}</text></navLabel></ncx>"
        for label in ("one", "ONE")
    ),
    "Scripts/a.js": ("go()", "go()"),
}
BOOK = {name: before for name, (before, _) in FILES.items()}


def book(path: Path, files: dict[str, str] = BOOK) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_book(tmp_path: Path) -> None:
    target = tmp_path / "b.epub"

    fragments = shout_file(book(tmp_path / "a.epub"), target)

    page = '<br id="2"/> <g id="4">runs</g>'
    assert fragments == ["a book &amp; more", f"a dog{page}", f"a cat{page}", "one"]
    for name, data in parts(target).items():
        assert data.decode().endswith(FILES[name][1])
    with zipfile.ZipFile(target) as archive:
        first = archive.infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


def protected(algorithm: str) -> dict[str, str]:
    method = f'<e:EncryptionMethod Algorithm="{algorithm}"/>'
    return {"META-INF/encryption.xml": f'<encryption xmlns:e="urn:e">{method}</encryption>'}


def test_fonts_may_be_garbled(tmp_path: Path) -> None:
    garbled = protected("http://www.idpf.org/2008/embedding")

    assert read_document(book(tmp_path / "a.epub", BOOK | garbled), "a.epub").fragments


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (protected("http://www.w3.org/2001/04/xmlenc#aes256-cbc"), "copies are protected"),
        ({"mimetype": "application/zip"}, "no EPUB"),
        ({"META-INF/container.xml": "<container/>"}, "names no book"),
        ({"O/book.opf": "<package>"}, "not well-formed"),
    ],
)
def test_books_that_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_document(book(tmp_path / "a.epub", BOOK | files), "a.epub")
