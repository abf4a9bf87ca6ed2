"""Reads and writes .po: messages without a translation and fuzzy ones, their plurals too."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polib

from serving.documents.document import Document
from serving.documents.parts.spans import Span
from serving.documents.parts.tags import pieces_of
from serving.errors import RequestError


@dataclass(frozen=True)
class _Message:
    """Holds a text to translate and where its translation goes."""

    span: Span
    put: Callable[[str], None]


class PoDocument:
    def __init__(self, file: polib.POFile) -> None:
        self._file = file
        found = [message for entry in file if not entry.obsolete for message in _messages(entry)]
        self._messages = [each for each in found if each.span.fragment.has_words]

    @property
    def fragments(self) -> Sequence[str]:
        return [each.span.fragment.xml for each in self._messages]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        for message, translation in zip(self._messages, translations, strict=True):
            message.put(message.span.translated(translation))
        if not self._file.metadata.get("Language"):
            self._file.metadata["Language"] = language.replace("-", "_")
        self._file.save(str(target))


def read(path: Path) -> Document:
    """Raises RequestError."""
    try:
        file = polib.pofile(str(path), encoding=polib.detect_encoding(str(path)))
    except (OSError, UnicodeDecodeError, LookupError, ValueError, IndexError) as error:
        reason = str(error).replace(str(path), path.name)
        raise RequestError("file", path.name, f"is not a PO file: {reason}") from None
    if not len(file):
        raise RequestError("file", path.name, "is not what its name says: it has no messages")
    return PoDocument(file)


def _messages(entry: polib.POEntry) -> Iterator[_Message]:
    if entry.translated():
        return
    if not entry.msgid_plural:
        yield _Message(_span(entry.msgid), partial(_put, entry))
        return
    for number in sorted(entry.msgstr_plural):
        text = entry.msgid if number == 0 else entry.msgid_plural
        yield _Message(_span(text), partial(_put_plural, entry, number))


def _span(text: str) -> Span:
    return Span(0, len(text), [*pieces_of(text)])


def _put(entry: polib.POEntry, translation: str) -> None:
    entry.msgstr = translation
    _settle(entry)


def _put_plural(entry: polib.POEntry, number: int, translation: str) -> None:
    entry.msgstr_plural[number] = translation
    _settle(entry)


def _settle(entry: polib.POEntry) -> None:
    """Take away the mark by which programs pass a translation over, and what it was fuzzy of."""
    entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    entry.previous_msgid = entry.previous_msgid_plural = entry.previous_msgctxt = None
