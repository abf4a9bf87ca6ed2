"""Lists the formats of documents, and finds the one that a file's name says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from serving.documents.document import Document
from serving.documents.formats import (
    docx,
    html,
    markdown,
    odt,
    po,
    pptx,
    srt,
    txt,
    xliff,
    xlsx,
)
from serving.errors import RequestError

_OFFICE = "application/vnd.openxmlformats-officedocument."


@dataclass(frozen=True)
class Format:
    """Describes a format. read: raises RequestError for a file that is not what its name says."""

    media_type: str
    read: Callable[[Path], Document]


FORMATS = {
    "txt": Format("text/plain", txt.read),
    "html": Format("text/html", html.read),
    "htm": Format("text/html", html.read),
    "md": Format("text/markdown", markdown.read),
    "docx": Format(_OFFICE + docx.MAIN_TYPE, docx.read),
    "pptx": Format(_OFFICE + pptx.MAIN_TYPE, pptx.read),
    "xlsx": Format(_OFFICE + xlsx.MAIN_TYPE, xlsx.read),
    "odt": Format("application/vnd.oasis.opendocument.text", odt.read),
    "srt": Format("application/x-subrip", srt.read),
    "po": Format("text/x-gettext-translation", po.read),
    "xliff": Format("application/xliff+xml", xliff.read),
    "xlf": Format("application/xliff+xml", xliff.read),
}


def extension_of(name: str) -> str:
    """Return the extension of a document's name, one of FORMATS. Raises RequestError."""
    extension = PurePath(name).suffix.lower().removeprefix(".")
    if extension not in FORMATS:
        known = ", ".join(f".{each}" for each in FORMATS)
        raise RequestError("file", name, f"is of no known format; there are: {known}")
    return extension


def read_document(path: Path, name: str) -> Document:
    """Read the file at a path as what its name says. Raises RequestError."""
    return FORMATS[extension_of(name)].read(path)
