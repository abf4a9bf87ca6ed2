"""Reads and writes .txt: each line is a text of its own."""

import re
from pathlib import Path

from serving.documents.document import Document
from serving.documents.formats.plain import PlainDocument
from serving.documents.parts.encoding import read_text
from serving.documents.parts.spans import Span

_LINE = re.compile(r"[^\r\n]+")


def read(path: Path, language: str | None = None) -> Document:
    """Raises RequestError."""
    file = read_text(path, language)
    lines = _LINE.finditer(file.text)
    return PlainDocument(file, (Span(line.start(), line.end(), [line.group()]) for line in lines))
