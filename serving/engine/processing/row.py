"""Gathers everything that one row's request asks of its scores."""

from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.constraints import Mask, Matcher
from serving.engine.generation import Generation
from serving.engine.processing.bans import Ban, bans_of
from serving.engine.processing.changes import Changes


@dataclass(frozen=True, slots=True)
class RowProcessors:
    """asked_ids: i64, tokens that may come only here."""

    changes: Changes | None
    bans: tuple[Ban, ...]
    matchers: tuple[Matcher, ...]
    asked_ids: Array

    def banned(self) -> list[Array]:
        return [token_ids for ban in self.bans if len(token_ids := ban.banned())]

    def accept(self, token_id: int) -> None:
        if self.changes is not None:
            self.changes.accept(token_id)
        for ban in self.bans:
            ban.accept(token_id)
        for matcher in self.matchers:
            matcher.accept(token_id)

    def fork(self) -> "RowProcessors":
        return RowProcessors(
            None if self.changes is None else self.changes.fork(),
            tuple(ban.fork() for ban in self.bans),
            tuple(matcher.fork() for matcher in self.matchers),
            self.asked_ids,
        )


def row_processors(
    generation: Generation, vocab_size: int, asked_ids: Array
) -> RowProcessors | None:
    """Return the processors of a request; None if it asks for nothing."""
    params = generation.request.processors
    has_changes = (
        params.repetition_penalty != 1
        or params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.logit_bias
    )
    changes = Changes(generation, vocab_size) if has_changes else None
    bans, matchers = bans_of(generation), _matchers_of(generation, vocab_size)
    if not (has_changes or bans or matchers):
        return None
    return RowProcessors(changes, bans, matchers, asked_ids)


class AllowedTokens:
    """Allows the same tokens at every step; a matcher without a place to remember."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask

    def allowed(self, mask: Mask) -> None:
        mask[:] = self._mask

    def accept(self, token_id: int) -> None:
        pass

    def fork(self) -> Matcher:
        return self


def _matchers_of(generation: Generation, vocab_size: int) -> tuple[Matcher, ...]:
    request = generation.request
    matchers: list[Matcher] = []
    if request.processors.allowed_ids is not None:
        mask = np.zeros(vocab_size, bool)
        mask[[*request.processors.allowed_ids, *generation.stop_ids]] = True
        matchers.append(AllowedTokens(mask))
    if request.constraint is not None:
        matchers.append(request.constraint.start())
    return tuple(matchers)
