"""Books: pages, tables of contents and the title are translated; all else stays."""

import zipfile
from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.packages.test_office import parts
from tests.serving.documents.shouting import shouted_file

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile'
    ' full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    "</container>"
)
OPF = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" xml:lang="en"><metadata
 xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>a book &amp; more</dc:title>
<dc:creator>ann</dc:creator><dc:language>en</dc:language></metadata><manifest>
<item id="two" href="b.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="a%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="gone" href="gone.xhtml" media-type="application/xhtml+xml"/>
<item id="css" href="a.css" media-type="text/css"/></manifest>
<spine toc="ncx"><itemref idref="one"/><itemref idref="two"/></spine></package>"""
PAGE = (
    '<?xml version="1.0" encoding="UTF-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
    '<title/><script src="a.js"/></head><body><p>{}<br/> <em>runs</em></p></body></html>'
)
NCX = (
    '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx.dtd">'
    "<ncx><docTitle><text>a book</text></docTitle><docAuthor><text>ann</text></docAuthor><navMap>"
    "<navPoint><navLabel><text>one</text></navLabel></navPoint></navMap></ncx>"
)
FILES = {
    "META-INF/container.xml": CONTAINER,
    "mimetype": "application/epub+zip",
    "OEBPS/book.opf": OPF,
    "OEBPS/a b.xhtml": PAGE.format("a dog"),
    "OEBPS/b.xhtml": PAGE.format("a cat"),
    "OEBPS/nav.xhtml": "<html><body><nav><a href='b.xhtml'>two</a></nav></body></html>",
    "OEBPS/toc.ncx": NCX,
    "OEBPS/a.css": "p { color: red }",
    "Scripts/a.js": "go()",
}


def book(path: Path, files: dict[str, str] = FILES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_book(tmp_path: Path) -> None:
    target = tmp_path / "b.epub"

    fragments = shouted_file(book(tmp_path / "a.epub"), target)

    assert fragments == [
        "a book &amp; more",
        *('a dog<br id="2"/> <g id="4">runs</g>', 'a cat<br id="2"/> <g id="4">runs</g>'),
        *("two", "a book", "one"),
    ]
    written = {name: data.decode() for name, data in parts(target).items()}
    changes = {
        "book.opf": [("a book &amp; more", "A BOOK &amp; MORE"), ('g="en"', 'g="fr"')],
        "toc.ncx": [(">a book<", ">A BOOK<"), (">one<", ">ONE<")],
        "nav.xhtml": [(">two<", ">TWO<"), ("<html", '<html lang="fr"')],
    }
    for name, changed in changes.items():
        expected = FILES[f"OEBPS/{name}"].replace(">en</dc", ">fr</dc")
        for old, new in changed:
            expected = expected.replace(old, new)
        assert written[f"OEBPS/{name}"] == expected
    assert "<p>A DOG<br/> <em>RUNS</em></p>" in written["OEBPS/a b.xhtml"]
    assert "<p>A CAT<br/> <em>RUNS</em></p>" in written["OEBPS/b.xhtml"]
    kept = ("META-INF/container.xml", "OEBPS/a.css", "Scripts/a.js")
    assert all(written[name] == FILES[name] for name in kept)


def test_the_type_comes_first_and_is_not_packed(tmp_path: Path) -> None:
    target = tmp_path / "b.epub"
    shouted_file(book(tmp_path / "a.epub"), target)

    with zipfile.ZipFile(target) as archive:
        first = archive.infolist()[0]

    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert target.read_bytes()[38:58] == b"application/epub+zip"


def protected(algorithm: str) -> dict[str, str]:
    says = (
        '<encryption><enc:EncryptedData xmlns:enc="http://www.w3.org/2001/04/xmlenc#">'
        f'<enc:EncryptionMethod Algorithm="{algorithm}"/></enc:EncryptedData></encryption>'
    )
    return {"META-INF/encryption.xml": says}


def test_fonts_may_be_garbled(tmp_path: Path) -> None:
    garbled = protected("http://www.idpf.org/2008/embedding")

    assert read_document(book(tmp_path / "a.epub", FILES | garbled), "a.epub").fragments


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (protected("http://www.w3.org/2001/04/xmlenc#aes256-cbc"), "copies are protected"),
        ({"mimetype": "application/zip"}, "no EPUB"),
        ({"META-INF/container.xml": "<container/>"}, "names no book"),
        ({"OEBPS/book.opf": "<package>"}, "not well-formed"),
        ({"META-INF/container.xml": CONTAINER.replace("book.opf", "none.opf")}, "missing in it"),
    ],
)
def test_books_that_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    path = book(tmp_path / "a.epub", FILES | files)

    with pytest.raises(RequestError, match=message):
        read_document(path, path.name)
