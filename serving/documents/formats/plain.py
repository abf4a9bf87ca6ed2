"""Holds what formats of plain text share: a file, some stretches of which are translated."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from serving.documents.parts.encoding import TextFile
from serving.documents.parts.spans import Span, replaced


class PlainDocument:
    """Holds the stretches with words of a file, in their order."""

    def __init__(self, file: TextFile, spans: Iterable[Span]) -> None:
        self._file = file
        self._spans = [span for span in spans if span.fragment.has_words]

    @property
    def fragments(self) -> Sequence[str]:
        return [span.fragment.xml for span in self._spans]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        self._file.write(replaced(self._file.text, self._spans, translations), target)
