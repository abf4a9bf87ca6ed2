"""The formats of documents by the extensions of file names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from serving.documents.document import Document
from serving.documents.formats import html, markdown, pdf, plain_text, po, subtitles, tmx, xliff
from serving.documents.packages import epub, idml, odt, presentation, wordprocessing, xlsx
from serving.errors import RequestError

_OFFICE = "application/vnd.openxmlformats-officedocument."
Read = Callable[[Path, str | None, str | None], Document]


@dataclass(frozen=True)
class Format:
    """A format of documents.

    read: takes a path and the languages of the text and of its translation, if they are known;
    raises RequestError for a file of another format. result: the extension of translations, if it
    differs. has_review: it reads a `ReviewedDocument`. is_text: a file is text, no archive.
    """

    media_type: str
    read: Read
    result: str | None = None
    has_review: bool = False
    is_text: bool = True


def _guesses_its_encoding(read: Callable[[Path, str | None], Document]) -> Read:
    return lambda path, source, target: read(path, source)


def _names_its_encoding(read: Callable[[Path], Document]) -> Read:
    return lambda path, source, target: read(path)


FORMATS = {
    "txt": Format("text/plain", _guesses_its_encoding(plain_text.read_txt)),
    "html": Format("text/html", _guesses_its_encoding(html.read_html_file)),
    "htm": Format("text/html", _guesses_its_encoding(html.read_html_file)),
    "md": Format("text/markdown", _guesses_its_encoding(markdown.read_markdown)),
    "docx": Format(
        _OFFICE + wordprocessing.MAIN_TYPE,
        _names_its_encoding(wordprocessing.read_docx),
        is_text=False,
    ),
    "pptx": Format(
        _OFFICE + presentation.MAIN_TYPE, _names_its_encoding(presentation.read_pptx), is_text=False
    ),
    "xlsx": Format(_OFFICE + xlsx.MAIN_TYPE, _names_its_encoding(xlsx.read_xlsx), is_text=False),
    "odt": Format(odt.MEDIA_TYPE, _names_its_encoding(odt.read_odt), is_text=False),
    "srt": Format("application/x-subrip", _guesses_its_encoding(subtitles.read_srt)),
    "vtt": Format("text/vtt", _guesses_its_encoding(subtitles.read_vtt)),
    "po": Format("text/x-gettext-translation", _guesses_its_encoding(po.read_po), has_review=True),
    "pot": Format(
        "text/x-gettext-translation",
        _guesses_its_encoding(po.read_po),
        result="po",
        has_review=True,
    ),
    "xliff": Format(
        "application/xliff+xml", _names_its_encoding(xliff.read_xliff), has_review=True
    ),
    "xlf": Format("application/xliff+xml", _names_its_encoding(xliff.read_xliff), has_review=True),
    "sdlxliff": Format("application/xliff+xml", _names_its_encoding(xliff.read_xliff)),
    "epub": Format(epub.MEDIA_TYPE, _names_its_encoding(epub.read_epub), is_text=False),
    "idml": Format(idml.MEDIA_TYPE, _names_its_encoding(idml.read_idml), is_text=False),
    "pdf": Format(
        "application/pdf", _guesses_its_encoding(pdf.read_pdf), result="txt", is_text=False
    ),
    "tmx": Format("application/x-tmx+xml", tmx.read_tmx),
}


def file_extension(name: str) -> str:
    """Return the extension of a file name, one of FORMATS. Raises RequestError."""
    extension = PurePath(name).suffix.lower().removeprefix(".")
    if extension not in FORMATS:
        extensions = ", ".join(f".{extension}" for extension in FORMATS)
        raise RequestError("file", name, f"is of no known format; there are: {extensions}")
    return extension


def check_review(name: str, threshold: float) -> None:
    """Raise RequestError if a document of this name cannot say how good its translations are."""
    if not FORMATS[file_extension(name)].has_review:
        able = ", ".join(
            f".{extension}" for extension, format in FORMATS.items() if format.has_review
        )
        message = f"{name} cannot say what needs a review; these formats can: {able}"
        raise RequestError("quality_threshold", threshold, message)


def is_packed(name: str) -> bool:
    """Return whether a file of this name is a document that is not text."""
    document_format = FORMATS.get(PurePath(name).suffix.lower().removeprefix("."))
    return document_format is not None and not document_format.is_text


def result_name(name: str) -> str:
    """Return the file name of the translation. Raises RequestError."""
    extension = file_extension(name)
    if (result := FORMATS[extension].result) is None:
        return name
    return name[: -len(extension)] + result


def read_document(
    path: Path, name: str, source: str | None = None, target: str | None = None
) -> Document:
    """Read a file in the format of its name. Raises RequestError.

    source, target: the languages of the text and of its translation, if they are known.
    """
    return FORMATS[file_extension(name)].read(path, source, target)
