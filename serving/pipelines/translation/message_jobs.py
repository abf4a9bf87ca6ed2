"""Translates the branches of ICU messages: each is a text of its own, the message around them
another.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from serving.errors import RequestError
from serving.pipelines.translation.job import Rendering, Translation, TranslationJob
from serving.text.formatting import formatted_as
from serving.text.icu_messages import Argument, arguments
from serving.text.markup.reading import read_tokens
from serving.text.markup.tokens import Role


@dataclass(frozen=True, slots=True)
class _Message:
    """A text whose arguments have been replaced by placeholders.

    text: the text, with the placeholders, and figures for each "#" that stands for a number.
    figures: those, in the order of the signs.
    placeholders: one for each argument.
    pieces: of each argument, what stands before, between and after its branches.
    branches: of each argument, its branches, which may hold further arguments.
    """

    text: str
    figures: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    pieces: tuple[tuple[str, ...], ...] = ()
    branches: tuple[tuple["_Message", ...], ...] = ()

    def texts(self) -> Iterator[str]:
        """Yield all that is to be translated: the text itself, then its branches."""
        yield self.text
        for own in self.branches:
            for branch in own:
                yield from branch.texts()

    def filled(self, translated: str, others: Iterator[str]) -> str:
        """Return a translation with all arguments and signs.

        others: the translations of the branches, in the order of `texts`.
        """
        for figures in self.figures:
            translated = re.sub(rf"(?<!\d){figures}(?!\d)", "#", translated, count=1)
        for placeholder, pieces, own in zip(
            self.placeholders, self.pieces, self.branches, strict=True
        ):
            written = [branch.filled(_formatted(branch, next(others)), others) for branch in own]
            parts = [part for pair in zip(pieces, [*written, ""], strict=True) for part in pair]
            translated = translated.replace(placeholder, "".join(parts), 1)
        return translated


class MessageJob:
    """A job whose texts have ICU messages in them, and the job that translates their branches too.

    job: what is translated: the texts with placeholders, then all branches.
    """

    def __init__(self, job: TranslationJob, messages: Sequence[_Message]) -> None:
        self._messages = messages
        outer = [message.text for message in messages]
        inner = [text for message in messages for text in [*message.texts()][1:]]
        self.job = replace(job, texts=(*outer, *inner))

    @classmethod
    def of(cls, job: TranslationJob) -> "MessageJob | None":
        """Return the job if there are messages to take apart: where what must not change is
        protected, and nobody asks for more than texts.
        """
        asks_for_more = (
            job.wants_attention or job.looks or job.target_prefix or job.alternatives_at_prefix
        )
        may_have = any("{" in text and "," in text for text in job.texts)
        if not (job.protection and may_have) or asks_for_more:
            return None
        messages = [_message(text, job) for text in job.texts]
        return cls(job, messages) if any(each.placeholders for each in messages) else None

    def put_together(self, translation: Translation) -> Translation:
        """Return the translation with the branches in the texts; alternatives differ outside of
        them.
        """
        outer = translation.renderings[: len(self._messages)]
        inner = (best.text for best, *_ in translation.renderings[len(self._messages) :])
        renderings = []
        for message, ranked in zip(self._messages, outer, strict=True):
            num_inner = sum(1 for _ in message.texts()) - 1
            branches = [next(inner) for _ in range(num_inner)]
            renderings.append(tuple(_with(message, each, branches) for each in ranked))
        return replace(translation, renderings=tuple(renderings))


def _with(message: _Message, rendering: Rendering, branches: Sequence[str]) -> Rendering:
    return replace(rendering, text=message.filled(rendering.text, iter(branches)))


def _formatted(branch: _Message, translated: str) -> str:
    """Return a branch's translation with its first letter and last mark as in the source: it may
    be a part of a sentence.
    """
    return formatted_as(branch.text, translated)


def _message(text: str, job: TranslationJob, selector: str | None = None) -> _Message:
    """Take a text apart.

    selector: what it is chosen by, if it is a branch in which "#" stands for a number.
    """
    found = [each for each in arguments(text) if _is_translated(text, each, job)]
    names = (f"{{message{number}}}" for number in count())
    placeholders = [next(name for name in names if name not in text) for _ in found]
    outer, start = "", 0
    for argument, placeholder in zip(found, placeholders, strict=True):
        outer += text[start : argument.span.start] + placeholder
        start = argument.span.end
    outer, figures = _with_figures(outer + text[start:], selector)
    return _Message(
        outer,
        figures,
        tuple(placeholders),
        tuple(tuple(_pieces(text, argument)) for argument in found),
        tuple(
            tuple(
                _message(text[slice(*span)], job, selector if argument.has_number else None)
                for span, selector in zip(argument.branches, argument.selectors, strict=True)
            )
            for argument in found
        ),
    )


def _with_figures(text: str, selector: str | None) -> tuple[str, tuple[str, ...]]:
    """Return a branch with figures in the place of each "#", of a number that it may stand for, and
    what they are: a model translates "3 dogs" well, and numbers are protected.
    """
    if selector is None:
        return text, ()
    named = {"zero": 0, "one": 1, "two": 2}.get(selector, 3)
    first = int(selector[1:]) if selector.startswith("=") else named
    candidates = (str(number) for number in count(first) if str(number) not in text)
    figures: list[str] = []

    def next_figures(sign: re.Match[str]) -> str:
        if sign.group() == "#":
            figures.append(next(candidates))
        return figures[-1] if sign.group() == "#" else sign.group()

    # What is quoted or in a placeholder is no number.
    return re.sub(r"'[{}#|][^']*'|\{[^{}]*\}|#", next_figures, text), tuple(figures)


def _pieces(text: str, argument: Argument) -> Iterator[str]:
    start = argument.span.start
    for branch in argument.branches:
        yield text[start : branch.start]
        start = branch.end
    yield text[start : argument.span.end]


def _is_translated(text: str, argument: Argument, job: TranslationJob) -> bool:
    """Say if an argument stands in text that is translated, and its branches can be read alone."""
    if job.markup is None:
        return True
    name = "{message}"
    whole = text[: argument.span.start] + name + text[argument.span.end :]
    try:
        for branch in argument.branches:
            [*read_tokens(text[slice(*branch)], job.markup, is_protected=True)]
        tokens = [*read_tokens(whole, job.markup, is_protected=True)]
    except RequestError:
        return False
    return any(token.role is Role.TEXT and name in token.text for token in tokens)
