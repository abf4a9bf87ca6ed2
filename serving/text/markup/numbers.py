"""Puts right the numbers of a translation that are others than the source's."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from serving.text.alignment import Span
from serving.text.markup.tokens import Token
from serving.text.markup.translated import TargetWord, TranslatedWords
from serving.text.protection.numbers import NUMBER, values

_LARGEST_SPELLED = 20  # as twenty may be written; what is larger must stand in digits


@dataclass(slots=True)
class _Found:
    """Holds a number in a translation, of one word or more."""

    words: list[TargetWord]
    values: frozenset[Decimal]

    def came_of(self, number: int) -> float:
        return max(float(word.origins[number]) for word in self.words)


def put_right_numbers(translated: TranslatedWords, numbers: Mapping[int, Token]) -> None:
    """Write each number of the source over the one that came of it, if that is another or is
    written as in the source; a large one that is missing over the word that came of it.
    """
    found = _numbers(translated)
    missing: dict[int, Token] = {}
    for number, token in numbers.items():
        meant = values(token.text)
        same = [each for each in found if each.values & meant]
        if same:
            right = max(same, key=lambda each: each.came_of(number))
            found.remove(right)
            if right.words[0].text == token.text:  # as the source writes it
                right.words[0].text = token.name
        else:
            missing[number] = token
    for number, token in missing.items():
        if found:
            wrong = max(found, key=lambda each: each.came_of(number))
            found.remove(wrong)
            _write(translated, wrong.words, token)
        elif not _may_be_spelled(token):
            _write(translated, [translated.made_room(number)], token)


def _numbers(translated: TranslatedWords) -> list[_Found]:
    """Return the numbers among the words that are not kept."""
    text, spans = "", []
    for word in translated.words:
        start = len(text) + len(word.gap)
        text += word.gap + ("\0" if word.raw is not None else word.text)
        spans.append(Span(start, len(text)))
    found = []
    for match in NUMBER.finditer(text):
        words = [
            word
            for word, span in zip(translated.words, spans, strict=True)
            if span.start >= match.start() and span.end <= match.end()
        ]
        if words:
            found.append(_Found(words, values(match.group())))
    return found


def _write(translated: TranslatedWords, words: list[TargetWord], token: Token) -> None:
    first, *others = words
    first.text = token.name
    translated.words = [word for word in translated.words if word not in others]


def _may_be_spelled(token: Token) -> bool:
    return token.text.isdigit() and int(token.text) <= _LARGEST_SPELLED
