"""The formats of documents by the extensions of file names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from serving.documents.formats import (
    html,
    markdown,
    odt,
    office,
    plain_text,
    po,
    subtitles,
    xliff,
    xlsx,
)
from serving.documents.fragment import Document
from serving.errors import RequestError

_OFFICE = "application/vnd.openxmlformats-officedocument."


@dataclass(frozen=True)
class Format:
    """A format of documents.

    read: takes a path and the language of the text, if it is known; raises RequestError for a file
    of another format. result: the extension of translations, if it differs. has_review: it reads a
    `ReviewedDocument`.
    """

    media_type: str
    read: Callable[[Path, str | None], Document]
    result: str | None = None
    has_review: bool = False


def _names_its_encoding(read: Callable[[Path], Document]) -> Callable[[Path, str | None], Document]:
    return lambda path, language: read(path)


FORMATS = {
    "txt": Format("text/plain", plain_text.read_txt),
    "html": Format("text/html", html.read),
    "htm": Format("text/html", html.read),
    "md": Format("text/markdown", markdown.read),
    "docx": Format(_OFFICE + office.DOCX_TYPE, _names_its_encoding(office.read_docx)),
    "pptx": Format(_OFFICE + office.PPTX_TYPE, _names_its_encoding(office.read_pptx)),
    "xlsx": Format(_OFFICE + xlsx.MAIN_TYPE, _names_its_encoding(xlsx.read)),
    "odt": Format("application/vnd.oasis.opendocument.text", _names_its_encoding(odt.read)),
    "srt": Format("application/x-subrip", subtitles.read_srt),
    "vtt": Format("text/vtt", subtitles.read_vtt),
    "po": Format("text/x-gettext-translation", po.read, has_review=True),
    "pot": Format("text/x-gettext-translation", po.read, result="po", has_review=True),
    "xliff": Format("application/xliff+xml", _names_its_encoding(xliff.read), has_review=True),
    "xlf": Format("application/xliff+xml", _names_its_encoding(xliff.read), has_review=True),
    "sdlxliff": Format("application/xliff+xml", _names_its_encoding(xliff.read)),
}


def extension_of(name: str) -> str:
    """Return the extension of a file name, one of FORMATS. Raises RequestError."""
    extension = PurePath(name).suffix.lower().removeprefix(".")
    if extension not in FORMATS:
        known = ", ".join(f".{each}" for each in FORMATS)
        raise RequestError("file", name, f"is of no known format; there are: {known}")
    return extension


def check_review(name: str, threshold: float) -> None:
    """Raise RequestError if a document of this name cannot say how good its translations are."""
    if not FORMATS[extension_of(name)].has_review:
        able = ", ".join(f".{each}" for each, found in FORMATS.items() if found.has_review)
        message = f"{name} cannot say what needs a review; these formats can: {able}"
        raise RequestError("quality_threshold", threshold, message)


def is_packed(name: str) -> bool:
    """Return whether a file of this name is a document that is not text: an archive."""
    return PurePath(name).suffix.lower() in (".docx", ".pptx", ".xlsx", ".odt")


def result_name(name: str) -> str:
    """Return the file name of the translation. Raises RequestError."""
    extension = extension_of(name)
    if (result := FORMATS[extension].result) is None:
        return name
    return name[: -len(extension)] + result


def read_document(path: Path, name: str, language: str | None = None) -> Document:
    """Read a file in the format of its name. Raises RequestError.

    language: of the text, if it is known.
    """
    return FORMATS[extension_of(name)].read(path, language)
