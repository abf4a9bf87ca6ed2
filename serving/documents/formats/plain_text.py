"""Read and write .txt. The lines of a wrapped sentence are one text; others are separate texts."""

import re
from collections.abc import Iterator
from pathlib import Path

from serving.documents.document import Document
from serving.documents.encoding import TextFile, read_text
from serving.documents.spans import InlineMark, MarkRole, PlainDocument, TextSpan
from serving.text.wrapped_lines import wrapped_breaks

_TXT_LINE = re.compile(r"[^\r\n]+")
_COLUMN = re.compile(r"(?<=\S)( *\t[ \t]*| {3,}\t*)(?=\S)")
_LONGEST = 1_000  # characters of a text that is joined with the next line


def read_txt(path: Path, language: str | None = None) -> Document:
    """Read a plain text. Raises RequestError."""
    return plain_document(_with_line_feeds(read_text(path, language)), language)


def plain_document(file: TextFile, language: str | None) -> Document:
    if "\r" in file.text:
        lines = _TXT_LINE.finditer(file.text)
        return PlainDocument(file, (_span(file.text, *line.span()) for line in lines))
    return PlainDocument(file, _spans(file.text, language or ""))


def _with_line_feeds(file: TextFile) -> TextFile:
    """Return the file with line feeds only if all its lines end in the same way."""
    is_mixed = file.text.count("\n") != file.text.count("\r\n")
    return file if is_mixed else file.with_line_feeds()


def _spans(text: str, language: str) -> Iterator[TextSpan]:
    lines = text.split("\n")
    start = end = 0
    for line, goes_on in zip(lines, [*wrapped_breaks(lines, language), False], strict=True):
        end += len(line)
        if not goes_on or end - start > _LONGEST:
            yield _span(text, start, end)
            start = end + 1
        end += 1


def _span(text: str, start: int, end: int) -> TextSpan:
    pieces = enumerate(_COLUMN.split(text[start:end]))
    return TextSpan(
        start,
        end,
        [InlineMark(piece, MarkRole.SENTENCE_END) if n % 2 else piece for n, piece in pieces],
    )
