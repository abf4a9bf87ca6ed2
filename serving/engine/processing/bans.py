"""Bans tokens that must not come next, because of those that came before.

Each kind remembers what it needs of one row. What it knows of the prompt and of the request is
shared by the rows of a beam search; only what differs between them is copied.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from serving.arrays import Array
from serving.engine.generation import Generation

Ngrams = dict[tuple[int, ...], tuple[int, ...]]  # first tokens -> last tokens
Words = dict[int, list[tuple[int, ...]]]  # last token but one -> words
NOTHING = np.zeros(0, np.int64)


class Ban(Protocol):
    def banned(self) -> Array:
        """Return the banned token ids, i64 [tokens]; some perhaps twice."""

    def accept(self, token_id: int) -> None: ...

    def fork(self) -> "Ban": ...


def bans_of(generation: Generation) -> tuple[Ban, ...]:
    """List the bans that a request asks for, in Hugging Face's order."""
    params = generation.request.processors
    known, stop_ids = generation.given_ids, generation.stop_ids
    bans: list[Ban] = []
    if params.no_repeat_ngram_size:
        bans.append(RepeatedNgrams.after(known, params.no_repeat_ngram_size))
    if params.bad_words:
        bans.append(BadWords.after(known, params.bad_words, stop_ids))
    if params.min_tokens and stop_ids:
        bans.append(EarlyStops(params.min_tokens, np.array(sorted(stop_ids), np.int64)))
    return tuple(bans)


class RepeatedNgrams:
    """Lets no n-gram come twice (Paulus et al. 2018)."""

    def __init__(self, size: int, prompt: Ngrams, own: Ngrams, recent: tuple[int, ...]) -> None:
        """`prompt` is never written. recent: the last size - 1 tokens, fewer at the beginning."""
        self._size = size
        self._prompt, self._own, self._recent = prompt, own, recent

    @classmethod
    def after(cls, given_ids: tuple[int, ...], size: int) -> "RepeatedNgrams":
        followers: dict[tuple[int, ...], dict[int, None]] = {}
        for end in range(size - 1, len(given_ids)):
            followers.setdefault(given_ids[end - size + 1 : end], {})[given_ids[end]] = None
        prompt = {first: tuple(last) for first, last in followers.items()}
        return cls(size, prompt, {}, _last(given_ids, size - 1))

    def banned(self) -> Array:
        token_ids = self._prompt.get(self._recent, ()) + self._own.get(self._recent, ())
        return np.array(token_ids, np.int64) if token_ids else NOTHING

    def accept(self, token_id: int) -> None:
        if len(self._recent) == self._size - 1:
            self._own[self._recent] = (*self._own.get(self._recent, ()), token_id)
        self._recent = _last((*self._recent, token_id), self._size - 1)

    def fork(self) -> "RepeatedNgrams":
        return RepeatedNgrams(self._size, self._prompt, self._own.copy(), self._recent)


class BadWords:
    """Bans the last token of a word, once the others are there."""

    def __init__(self, singles: Array, words: Words, span: int, recent: tuple[int, ...]) -> None:
        """singles: words of one token. recent: the last `span` tokens, all that words look at."""
        self._singles, self._words, self._span, self._recent = singles, words, span, recent

    @classmethod
    def after(
        cls,
        given_ids: tuple[int, ...],
        bad_words: Sequence[tuple[int, ...]],
        stop_ids: frozenset[int],
    ) -> "BadWords":
        """Begin after the given tokens. A stop token alone is no word: as in Hugging Face, the
        request can still end.
        """
        words: Words = {}
        singles: list[int] = []
        for word in bad_words:
            if len(word) > 1:
                words.setdefault(word[-2], []).append(word)
            elif word[0] not in stop_ids:
                singles.append(word[0])
        span = max(len(word) for word in bad_words) - 1
        return cls(np.array(singles, np.int64), words, span, _last(given_ids, span))

    def banned(self) -> Array:
        words = self._words.get(self._recent[-1], ()) if self._recent else ()
        ends = [word[-1] for word in words if self._recent[1 - len(word) :] == word[:-1]]
        return np.concatenate([self._singles, ends]).astype(np.int64) if ends else self._singles

    def accept(self, token_id: int) -> None:
        self._recent = _last((*self._recent, token_id), self._span)

    def fork(self) -> "BadWords":
        return BadWords(self._singles, self._words, self._span, self._recent)


class EarlyStops:
    """Lets no stop token come before so many generated ones."""

    def __init__(self, num_missing: int, stop_ids: Array) -> None:
        self._num_missing, self._stop_ids = num_missing, stop_ids

    def banned(self) -> Array:
        return self._stop_ids if self._num_missing > 0 else NOTHING

    def accept(self, token_id: int) -> None:
        self._num_missing -= 1

    def fork(self) -> "EarlyStops":
        return EarlyStops(self._num_missing, self._stop_ids)


def _last(token_ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return token_ids[-count:] if count else ()
