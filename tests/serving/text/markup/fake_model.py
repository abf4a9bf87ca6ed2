"""Translates marked texts without a model: word by word, with the attention that a test gives."""

from collections.abc import Callable

import numpy as np

from serving.text.alignment import TokenizedText
from serving.text.markup.marked_translation import MarkedTranslation
from serving.text.markup.protection import Protection
from serving.text.markup.segmenter import MarkupSegmenter
from serving.text.markup.segments import MarkedLayout
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.sentences import Splitting

HTML, XML = Markup(MarkupKind.HTML), Markup(MarkupKind.XML)
Model = Callable[[str], tuple[list[str], np.ndarray | None]]


def layout(
    text: str,
    markup: Markup | None = None,
    protection: bool = False,
    splitting: Splitting = Splitting.SENTENCES,
) -> MarkedLayout:
    fits = lambda segment: len(segment) < 400  # noqa: E731
    return MarkupSegmenter(
        markup, Protection(None, protection, "en", "fr"), splitting, fits
    ).segment(text)


def pieces(text: str) -> list[str]:
    """Return the words of a text, each with the space before it."""
    first, *others = text.split(" ")
    return [first, *(" " + word for word in others)]


def tokenize_parts(parts: list[str]) -> TokenizedText:
    return TokenizedText.from_pieces([part.encode() for part in parts])


def translate(marked: MarkedLayout, model: Model) -> str:
    written = []
    for segment in marked.segments:
        words, attention = model(segment.text)
        source = tokenize_parts(pieces(segment.text))
        translation = MarkedTranslation(segment, tokenize_parts(words), source, attention)
        written.append(translation.text())
    return marked.plain.fill(written)


def by_table(table: dict[str, str], order: list[int] | None = None) -> Model:
    """Translate word by word, then put the words in this order."""

    def model(text: str) -> tuple[list[str], np.ndarray]:
        source = text.split(" ")
        places = order or [*range(len(source))]
        said = [table.get(source[place], source[place]) for place in places]
        rows = [place for place, words in zip(places, said, strict=True) for _ in words.split(" ")]
        return pieces(" ".join(said)), np.eye(len(source))[rows] * 0.9 + 0.1 / len(source)

    return model


def at_random(seed: int, has_attention: bool = True) -> Model:
    """Repeat some of the words, leave out others, and look anywhere."""
    generator = np.random.default_rng(seed)

    def model(text: str) -> tuple[list[str], np.ndarray | None]:
        source = pieces(text)
        choices = [*source, " un", " l'eau", ",", " <", "&", " \x07", " %1", "!", ""]
        words = [choices[generator.integers(len(choices))] for _ in range(generator.integers(9))]
        attention = generator.random((len(words), len(source))) ** 4
        return words, attention if has_attention else None

    return model
