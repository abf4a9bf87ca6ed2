"""Writes each number of a source once and correctly into its translation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from serving.text.markup.number_formats import NUMBER, possible_values
from serving.text.markup.tokens import Token
from serving.text.markup.translated_words import TargetWord, TranslatedWords
from serving.text.spans import Span

_LEAST_SHARE = 0.2  # of the attention of a number that stands for one of the source


@dataclass(slots=True)
class _TargetNumber:
    """A number in a translation, of one word or more.

    prefix, suffix: what is before it in its first word and after it in its last, as in mid-1990s.
    """

    words: list[TargetWord]
    prefix: str
    text: str
    suffix: str
    values: frozenset[Decimal]

    def share_of(self, number: int) -> float:
        """Return how much of it came of a number of the source."""
        return max(float(word.alignment[number]) for word in self.words)


def correct_numbers(translated: TranslatedWords, numbers: Mapping[int, Token]) -> None:
    """Write each number of the source once, in figures: over the number that came of it, if that
    is another or is written as in the source, or over the word that came of it. A further number
    of a translation goes if it came of a number or of what is not translated.
    """
    remaining = _find_numbers(translated)
    missing: dict[int, Token] = {}
    for number, token in numbers.items():
        meant = possible_values(token.text)
        same = [other for other in remaining if other.values & meant or other.text == token.text]
        if same:
            right = max(same, key=lambda other: other.share_of(number))
            remaining.remove(right)
            _write(translated, right, token if right.text == token.text else None)
        else:
            missing[number] = token
    for number, token in missing.items():
        wrong = max(remaining, key=lambda other: other.share_of(number), default=None)
        if wrong is not None and _stands_for_number(wrong, number, numbers):
            remaining.remove(wrong)
            _write(translated, wrong, token)
        else:
            word = translated.make_room(number)
            word.text = word.raw = token.name
    figures = {run for token in numbers.values() for run in re.findall(r"\d+", token.text)}
    for extra in remaining:
        is_doubled = not figures.isdisjoint(re.findall(r"\d+", extra.text))
        if is_doubled or translated.came_of_non_translatable(extra.words[0], numbers):
            translated.remove(extra.words)


def _stands_for_number(wrong: _TargetNumber, number: int, numbers: Mapping[int, Token]) -> bool:
    """Return whether a wrong number may stand for one of the source: it came of a number rather
    than of a word, as 12 of "twelve".
    """
    came_of = int(wrong.words[0].alignment.argmax())
    return came_of in numbers or wrong.share_of(number) > _LEAST_SHARE


def _find_numbers(translated: TranslatedWords) -> list[_TargetNumber]:
    """Return the numbers among the words that the model wrote."""
    text, spans = "", []
    for word in translated.words:
        start = len(text) + len(word.gap)
        text += word.gap + ("\0" if word.raw is not None else word.text)
        spans.append(Span(start, len(text)))
    numbers = []
    for match in NUMBER.finditer(text):
        covered = [
            (word, span)
            for word, span in zip(translated.words, spans, strict=True)
            if span.start < match.end() and span.end > match.start()
        ]
        if covered:
            words = [word for word, _ in covered]
            prefix = text[covered[0][1].start : match.start()]
            suffix = text[match.end() : covered[-1][1].end]
            numbers.append(
                _TargetNumber(words, prefix, match.group(), suffix, possible_values(match.group()))
            )
    return numbers


def _write(translated: TranslatedWords, target_number: _TargetNumber, token: Token | None) -> None:
    """Write a number over another, so that it stays; None lets that one stay as it is."""
    first, *others = target_number.words
    if token is None:
        for word in target_number.words:
            word.raw = word.text
        return
    first.text = first.raw = target_number.prefix + token.name + target_number.suffix
    translated.words = [word for word in translated.words if word not in others]
