"""Reads and writes .txt: lines that may be one sentence are one text, all others texts of their own."""

import re
from collections.abc import Iterator
from pathlib import Path

from serving.documents.document import Document
from serving.documents.formats.plain import PlainDocument
from serving.documents.parts.encoding import TextFile, read_text
from serving.documents.parts.spans import Span
from serving.text.wrapped_lines import may_go_on

_LINE = re.compile(r"[^\r\n]+")
_LONGEST = 1_000  # characters of a text


def read(path: Path) -> Document:
    """Raises RequestError."""
    file = _with_line_feeds(read_text(path))
    return PlainDocument(file, _spans(file.text))


def _with_line_feeds(file: TextFile) -> TextFile:
    """Return the same with line feeds alone if all its lines end alike."""
    is_mixed = file.text.count("\n") != file.text.count("\r\n")
    return file if is_mixed else file.with_line_feeds()


def _spans(text: str) -> Iterator[Span]:
    start = end = 0
    last = ""
    for line in _LINE.finditer(text):
        is_next = text[end : line.start()] == "\n" and line.end() - start <= _LONGEST
        if last and not (is_next and may_go_on(last, line.group())):
            yield Span(start, end, [text[start:end]])
            last = ""
        start = start if last else line.start()
        last, end = line.group(), line.end()
    if last:
        yield Span(start, end, [text[start:end]])
