"""Holds what formats of plain text share: a file, some stretches of which are translated."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from serving.documents.parts.encoding import TextFile
from serving.documents.parts.spans import Span, replaced


class PlainDocument:
    """Holds the stretches with words of a file, in their order."""

    def __init__(self, file: TextFile, spans: Iterable[Span]) -> None:
        self._file = file
        self._spans = _with_words(spans)

    @property
    def fragments(self) -> Sequence[str]:
        return [span.fragment.xml for span in self._spans]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        self._file.write(replaced(self._file.text, self._spans, translations), target)


class LayeredDocument:
    """Holds the stretches with words of a file, some of which stand within marks of others, as what
    an attribute of a tag says.

    layers: each finds stretches that are not within each other; those of the first are translated
        first. What they are then must not change which the others find, or their fragments.
    in_language: lets a text say which language it is in.
    """

    def __init__(
        self,
        file: TextFile,
        layers: Sequence[Callable[[str], Iterable[Span]]],
        in_language: Callable[[str, str], str] = lambda text, language: text,
    ) -> None:
        self._file, self._layers, self._in_language = file, layers, in_language
        self.fragments: Sequence[str] = [
            span.fragment.xml for layer in layers for span in _with_words(layer(file.text))
        ]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        text, waiting = self._file.text, iter(translations)
        for layer in self._layers:
            spans = _with_words(layer(text))
            text = replaced(text, spans, [*islice(waiting, len(spans))])
        self._file.write(self._in_language(text, language), target)


def _with_words(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span.fragment.has_words]
