"""Translate ICU messages: their branches are texts of their own, and are put back afterwards."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, zip_longest

from serving.errors import RequestError
from serving.pipelines.translation.job import Translation, TranslationJob
from serving.text.formatting import format_like_source
from serving.text.icu_messages import (
    IcuArgument,
    find_arguments,
)
from serving.text.markup.segmenter import tokenize_text
from serving.text.markup.tokens import Role

_PLACEHOLDER = re.compile(r"\{message\d+\}")
_NUMBER = re.compile(r"(?<!\d)\d+(?!\d)")
_DIGITS = re.compile(r"\d+")
_MOST_DIGITS = 7  # of a number that stands for a "#"


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of a message, whose branches are translated as texts of their own.

    placeholder: what stands for the argument in its message.
    pieces: the text before, between and after the branches.
    """

    placeholder: str
    pieces: tuple[str, ...]
    branches: tuple["_Message", ...]

    def fill(self, translations: Iterator[str]) -> str:
        """Return the argument with the next translations as its branches."""
        text = self.pieces[0]
        for branch, piece in zip(self.branches, self.pieces[1:], strict=True):
            # A branch may be a part of a sentence: it begins and ends as in the source.
            translated = format_like_source(branch.text, next(translations))
            text += branch.fill(translated, translations) + piece
        return text


@dataclass(frozen=True, slots=True)
class _Message:
    """A text to translate.

    text: with a placeholder for each argument, and a number for each "#" that stands for one.
    numbers: those that stand for "#", in order.
    """

    text: str
    numbers: tuple[str, ...]
    arguments: tuple[_Argument, ...]

    def branch_texts(self) -> Iterator[str]:
        """Yield the texts of all branches, those within a branch right after it."""
        for argument in self.arguments:
            for branch in argument.branches:
                yield branch.text
                yield from branch.branch_texts()

    def fill(self, translated: str, translations: Iterator[str]) -> str:
        """Return the text's translation with its "#" and arguments put back.

        translations: of `branch_texts`, in the same order.
        """
        translated = _replace_once(_NUMBER, dict.fromkeys(self.numbers, "#"), translated)
        filled = {argument.placeholder: argument.fill(translations) for argument in self.arguments}
        return _replace_once(_PLACEHOLDER, filled, translated)


def may_have_messages(job: TranslationJob) -> bool:
    """Return whether messages have to be looked for: not without protection, nor where more than
    texts is asked for.
    """
    if not (job.protection and any("{" in text and "," in text for text in job.texts)):
        return False
    return not (
        job.needs_attention
        or job.attention_queries
        or job.target_prefix
        or job.alternatives_at_prefix
    )


class MessageJob:
    """A job with ICU messages in its texts.

    job: the job to run instead: the texts with placeholders, then the texts of all branches.
    """

    def __init__(self, job: TranslationJob, messages: Sequence[_Message]) -> None:
        self._messages = messages
        outer = [message.text for message in messages]
        inner = [text for message in messages for text in message.branch_texts()]
        self.job = replace(job, texts=(*outer, *inner))

    @classmethod
    def from_job(cls, job: TranslationJob) -> "MessageJob | None":
        """Read the messages of a job's texts; None if none has branches to translate."""
        messages = [_read_message(text, job) for text in job.texts]
        return cls(job, messages) if any(message.arguments for message in messages) else None

    def merge(self, translation: Translation) -> Translation:
        """Return the translation of the texts; all alternatives have the same branches."""
        outer = translation.renderings[: len(self._messages)]
        inner = (best for best, *_ in translation.renderings[len(self._messages) :])
        renderings = []
        for message, ranked in zip(self._messages, outer, strict=True):
            branches = [next(inner) for _ in message.branch_texts()]
            quality = tuple(segment for branch in branches for segment in branch.quality)
            renderings.append(
                tuple(
                    replace(
                        rendering,
                        text=message.fill(rendering.text, (branch.text for branch in branches)),
                        quality=rendering.quality + quality,
                    )
                    for rendering in ranked
                )
            )
        return replace(translation, renderings=tuple(renderings))


def _read_message(text: str, job: TranslationJob, selector: str | None = None) -> _Message:
    """Replace the arguments of a text by placeholders.

    selector: of a branch in which "#" stands for a number.
    """
    valid_arguments = [
        argument for argument in find_arguments(text) if _has_valid_branches(text, argument, job)
    ]
    used_names = {*_PLACEHOLDER.findall(text)}
    names = (f"{{message{number}}}" for number in count())
    placeholders = [
        *islice((name for name in names if name not in used_names), len(valid_arguments))
    ]
    translated = _placeholders_in_text(_with_placeholders(text, valid_arguments, placeholders), job)
    pairs = [
        pair for pair in zip(valid_arguments, placeholders, strict=True) if pair[1] in translated
    ]
    outer = _with_placeholders(text, *zip(*pairs, strict=True)) if pairs else text
    arguments_of_message = tuple(
        _read_argument(text, argument, name, job) for argument, name in pairs
    )
    return _Message(*_with_numbers(outer, selector), arguments_of_message)


def _with_placeholders(text: str, spans: Sequence[IcuArgument], names: Sequence[str]) -> str:
    ends = [0, *(argument.span.end for argument in spans)]
    starts = [*(argument.span.start for argument in spans), len(text)]
    between = (text[end:start] for end, start in zip(ends, starts, strict=True))
    return "".join(part + name for part, name in zip_longest(between, names, fillvalue=""))


def _read_argument(
    text: str, argument: IcuArgument, placeholder: str, job: TranslationJob
) -> _Argument:
    branches = [
        _read_message(text[slice(*span)], job, selector if argument.has_number else None)
        for span, selector in zip(argument.branches, argument.selectors, strict=True)
    ]
    starts = (argument.span.start, *(branch.end for branch in argument.branches))
    ends = (*(branch.start for branch in argument.branches), argument.span.end)
    pieces = (text[start:end] for start, end in zip(starts, ends, strict=True))
    return _Argument(placeholder, tuple(pieces), tuple(branches))


def _with_numbers(text: str, selector: str | None) -> tuple[str, tuple[str, ...]]:
    """Return a branch with a number for each "#", and these numbers. The numbers are of the kind
    that the selector chooses: a model translates "3 dogs" well, and numbers are protected.
    """
    if selector is None:
        return text, ()
    named = {"zero": 0, "one": 1, "two": 2}.get(selector, 3)
    first = int(selector[1:]) if selector.startswith("=") else named
    used_numbers = {
        digits[start:end]
        for digits in _DIGITS.findall(text)
        for start in range(len(digits))
        for end in range(start + 1, min(start + _MOST_DIGITS, len(digits)) + 1)
    }
    unused = (str(number) for number in count(first) if str(number) not in used_numbers)
    # "#" in quotes or in a placeholder stands for no number.
    parts = re.split(r"('[{}#|][^']*'|\{[^{}]*\}|#)", text)
    numbers = tuple(next(unused) for part in parts if part == "#")
    waiting = iter(numbers)
    return "".join(next(waiting) if part == "#" else part for part in parts), numbers


def _has_valid_branches(text: str, argument: IcuArgument, job: TranslationJob) -> bool:
    """Return whether each branch is valid alone."""
    if job.markup is None:
        return True
    try:
        for branch in argument.branches:
            [*tokenize_text(text[slice(*branch)], job.markup, is_protected=True)]
    except RequestError:
        return False
    return True


def _placeholders_in_text(text: str, job: TranslationJob) -> frozenset[str]:
    """Return the placeholders of a text that stand in what is translated. All are found at once:
    to read the text for each would take the square of its length.
    """
    if job.markup is None:
        return frozenset(_PLACEHOLDER.findall(text))
    try:
        tokens = [*tokenize_text(text, job.markup, is_protected=True)]
    except RequestError:
        return frozenset()
    texts = (token.text for token in tokens if token.role is Role.TEXT)
    return frozenset(name for text in texts for name in _PLACEHOLDER.findall(text))


def _replace_once(pattern: re.Pattern[str], texts: Mapping[str, str], text: str) -> str:
    """Return a text with the first of each of what the pattern matches replaced."""
    waiting = {**texts}
    return pattern.sub(lambda match: waiting.pop(match.group(), match.group()), text)
