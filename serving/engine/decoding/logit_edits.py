"""Edits of a row's scores: logit bias, penalties, banned and allowed tokens.

Each row has a table of the tokens that it changes. The tables of all rows are concatenated, so that
a step changes them with one gather and one scatter. Data of bans that depends on the prompt is
shared by the rows of a beam search; only data that differs between rows is copied.
"""

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from serving.bundle.manifest import LengthDecay
from serving.engine.arrays import Array
from serving.engine.decoding.scores import NOTHING
from serving.engine.generation import Generation
from serving.requests.parameters import TimestampRules
from serving.requests.request import Mask, Matcher

BIAS, PENALTY, FLAT_PENALTY = range(3)  # columns of `Penalties`
# Of a score, in a logarithm: whatever the decay's factor, it stays finite in single precision.
MOST_GROWTH = math.log(1e30)
Ngrams = dict[tuple[int, ...], tuple[int, ...]]  # first tokens -> last tokens
Words = dict[int, list[tuple[int, ...]]]  # second to last token -> words


class Penalties:
    """The logit bias and the penalties of one row, in this order: add the bias; divide positive
    scores and multiply negative ones by the repetition penalty; subtract the presence and frequency
    penalties.

    Prompt tokens get only the repetition penalty, generated tokens get all penalties. A penalty of
    the source's tokens is multiplied into the repetition penalty.
    """

    def __init__(self, generation: Generation, vocab_size: int) -> None:
        params = generation.request.processors
        self._repetition = params.repetition_penalty
        self._presence, self._frequency = params.presence_penalty, params.frequency_penalty
        self.is_beam = generation.request.beam is not None
        biases = dict(params.logit_bias)
        prompt = set(generation.prefix_ids) if self._repetition != 1 else set()
        of_source = 1 / generation.model_processors.encoder_repetition_penalty
        source = {i for i in generation.input_ids if of_source != 1 and i < vocab_size}
        token_ids = [*biases, *((prompt | source) - biases.keys())]
        capacity = min(len(token_ids) + generation.max_new_tokens, vocab_size)
        self._index = {token_id: index for index, token_id in enumerate(token_ids)}
        self._token_ids = np.zeros(capacity, np.int64)
        self._token_ids[: len(token_ids)] = token_ids
        self._counts = np.zeros(capacity, np.int64)
        self._columns = np.zeros((3, capacity))
        self._columns[PENALTY] = 1
        self._columns[BIAS, : len(biases)] = list(biases.values())
        self._columns[PENALTY, [self._index[token_id] for token_id in source]] = of_source
        self._source_penalties = self._columns[PENALTY].copy()
        self._columns[PENALTY, [self._index[token_id] for token_id in prompt]] *= self._repetition

    def __len__(self) -> int:
        return len(self._index)

    @property
    def token_ids(self) -> Array:
        """Return the tokens that change, each once; i64 [tokens]."""
        return self._token_ids[: len(self._index)]

    @property
    def columns(self) -> Array:
        """Return bias, repetition penalty, and sum of presence and frequency penalties of each
        token; f64 [3, tokens].
        """
        return self._columns[:, : len(self._index)]

    def accept(self, token_id: int) -> None:
        if self._repetition == 1 and not self._presence and not self._frequency:
            return
        index = self._index.setdefault(token_id, len(self._index))
        self._token_ids[index] = token_id
        self._counts[index] += 1
        self._columns[PENALTY, index] = self._source_penalties[index] * self._repetition
        self._columns[FLAT_PENALTY, index] = self._presence + self._frequency * self._counts[index]

    def fork(self) -> "Penalties":
        twin = copy(self)
        twin._index = self._index.copy()
        twin._token_ids = self._token_ids.copy()
        twin._counts = self._counts.copy()
        twin._columns = self._columns.copy()
        return twin


@dataclass(frozen=True, slots=True)
class PenalizedScores:
    """Scores of some rows' tokens, [tokens]: before and after."""

    rows: Array
    token_ids: Array
    before: Array
    after: Array


def apply_penalties(
    logp: Array, log_normaliser: Array, penalties_of_rows: Sequence[tuple[int, Penalties]]
) -> PenalizedScores:
    """Return the changed scores of some rows; `logp` itself is not written.

    As in Hugging Face, logits are changed when sampling, log-probabilities in beam search; both are
    returned as log-probabilities. Computed in double precision, so that scores without changes stay
    exactly equal.
    """
    row_numbers = [row for row, _ in penalties_of_rows]
    tables = [penalties for _, penalties in penalties_of_rows]
    lengths = [len(penalties) for penalties in tables]
    rows = np.repeat(row_numbers, lengths)
    is_beam = np.repeat([penalties.is_beam for penalties in tables], lengths)
    token_ids = np.concatenate([penalties.token_ids for penalties in tables])
    bias, penalty, flat_penalty = np.concatenate([table.columns for table in tables], axis=1)
    shift = np.where(is_beam, 0, log_normaliser[rows]).astype(np.float64)
    before = logp[rows, token_ids]
    scores = before + shift + bias
    scores = np.where(scores < 0, scores * penalty, scores / penalty) - flat_penalty
    return PenalizedScores(rows, token_ids, before, (scores - shift).astype(np.float32))


class Ban(Protocol):
    """Tokens that one row must not take next. `accept` appends a token to the row, `fork` returns
    the ban of another row with the same tokens.
    """

    def banned_ids(self) -> Array:
        """Return the banned token ids, i64 [tokens]; some perhaps twice."""

    def accept(self, token_id: int) -> None: ...

    def fork(self) -> "Ban": ...


def make_bans(generation: Generation) -> tuple[Ban, ...]:
    """Return the bans that a request asks for, in Hugging Face's order."""
    params, model_processors = generation.request.processors, generation.model_processors
    prefix_ids, stop_ids = generation.prefix_ids, generation.stop_ids
    bans: list[Ban] = []
    if params.no_repeat_ngram_size:
        bans.append(RepeatedNgrams.start(prefix_ids, params.no_repeat_ngram_size))
    if size := model_processors.encoder_no_repeat_ngram_size:
        bans.append(SourceNgrams.start(prefix_ids, size, generation.input_ids))
    if words := (*model_processors.bad_words_ids, *params.bad_words):
        bans.append(BadWords.start(prefix_ids, words, stop_ids))
    if params.min_tokens and stop_ids:
        bans.append(EarlyTokens.start(stop_ids, params.min_tokens))
    if model_processors.suppress_tokens:
        bans.append(EarlyTokens.start(model_processors.suppress_tokens, math.inf))
    if model_processors.begin_suppress_tokens:
        bans.append(EarlyTokens.start(model_processors.begin_suppress_tokens, 1))
    return tuple(bans)


def _ngram_ends(token_ids: tuple[int, ...], size: int) -> Ngrams:
    """Return the tokens that end n-grams of a text, by the tokens before them."""
    followers: dict[tuple[int, ...], dict[int, None]] = {}
    for end in range(size - 1, len(token_ids)):
        followers.setdefault(token_ids[end - size + 1 : end], {})[token_ids[end]] = None
    return {first: tuple(last) for first, last in followers.items()}


class RepeatedNgrams:
    """Bans tokens that would repeat an n-gram (Paulus et al. 2018)."""

    def __init__(
        self, size: int, prompt: Ngrams, generated: Ngrams, recent: tuple[int, ...]
    ) -> None:
        """`prompt` is never written. recent: the last size - 1 tokens, fewer at the beginning."""
        self._size = size
        self._prompt, self._generated, self._recent = prompt, generated, recent

    @classmethod
    def start(cls, prefix_ids: tuple[int, ...], size: int) -> "RepeatedNgrams":
        return cls(size, _ngram_ends(prefix_ids, size), {}, _last(prefix_ids, size - 1))

    def banned_ids(self) -> Array:
        token_ids = self._prompt.get(self._recent, ()) + self._generated.get(self._recent, ())
        return np.array(token_ids, np.int64) if token_ids else NOTHING

    def accept(self, token_id: int) -> None:
        if len(self._recent) == self._size - 1:
            self._generated[self._recent] = (*self._generated.get(self._recent, ()), token_id)
        self._recent = _last((*self._recent, token_id), self._size - 1)

    def fork(self) -> "RepeatedNgrams":
        return RepeatedNgrams(self._size, self._prompt, self._generated.copy(), self._recent)


class SourceNgrams:
    """Bans tokens that would repeat an n-gram of the source."""

    def __init__(self, size: int, source: Ngrams, recent: tuple[int, ...]) -> None:
        """recent: the last size - 1 tokens, fewer at the beginning."""
        self._size, self._source, self._recent = size, source, recent

    @classmethod
    def start(
        cls, prefix_ids: tuple[int, ...], size: int, source_ids: tuple[int, ...]
    ) -> "SourceNgrams":
        return cls(size, _ngram_ends(source_ids, size), _last(prefix_ids, size - 1))

    def banned_ids(self) -> Array:
        token_ids = self._source.get(self._recent, ())
        return np.array(token_ids, np.int64) if token_ids else NOTHING

    def accept(self, token_id: int) -> None:
        self._recent = _last((*self._recent, token_id), self._size - 1)

    def fork(self) -> "SourceNgrams":
        return SourceNgrams(self._size, self._source, self._recent)


class BadWords:
    """Bans the last token of a word if the row ends with its other tokens."""

    def __init__(self, singles: Array, words: Words, span: int, recent: tuple[int, ...]) -> None:
        """singles: words of one token. recent: the last `span` tokens, enough for the
        longest word.
        """
        self._singles, self._words, self._span, self._recent = singles, words, span, recent

    @classmethod
    def start(
        cls,
        prefix_ids: tuple[int, ...],
        bad_words: Sequence[tuple[int, ...]],
        stop_ids: frozenset[int],
    ) -> "BadWords":
        """Start after the forced tokens. A single stop token is not banned: as in Hugging Face, the
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
        return cls(np.array(singles, np.int64), words, span, _last(prefix_ids, span))

    def banned_ids(self) -> Array:
        words = self._words.get(self._recent[-1], ()) if self._recent else ()
        ends = [word[-1] for word in words if self._recent[1 - len(word) :] == word[:-1]]
        return np.concatenate([self._singles, ends]).astype(np.int64) if ends else self._singles

    def accept(self, token_id: int) -> None:
        self._recent = _last((*self._recent, token_id), self._span)

    def fork(self) -> "BadWords":
        return BadWords(self._singles, self._words, self._span, self._recent)


class EarlyTokens:
    """Bans tokens until a number of tokens is generated; forever if it is infinite."""

    def __init__(self, num_missing: float, token_ids: Array) -> None:
        self._num_missing, self._token_ids = num_missing, token_ids

    @classmethod
    def start(cls, token_ids: Iterable[int], num_missing: float) -> "EarlyTokens":
        return cls(num_missing, np.array(sorted(token_ids), np.int64))

    def banned_ids(self) -> Array:
        return self._token_ids if self._num_missing > 0 else NOTHING

    def accept(self, token_id: int) -> None:
        self._num_missing -= 1

    def fork(self) -> "EarlyTokens":
        return EarlyTokens(self._num_missing, self._token_ids)


class StopGrowth:
    """Raises the scores of stop tokens, which then end the text sooner (`LengthDecay`)."""

    def __init__(self, decay: LengthDecay, stop_ids: Array, is_beam: bool, num_generated: int = 0):
        self._decay, self._stop_ids, self._is_beam = decay, stop_ids, is_beam
        self._num_generated = num_generated

    @property
    def is_active(self) -> bool:
        return self._num_generated > self._decay.start

    def apply(self, logp: Array, log_normaliser: float) -> None:
        """Change the scores of one row, f32 [vocabulary]. As in Hugging Face, the magnitude of a
        logit decides when sampling, that of a log-probability in a beam search.
        """
        ids = self._stop_ids[np.isfinite(logp[self._stop_ids])]
        scores = logp[ids].astype(np.float64) + (0.0 if self._is_beam else log_normaliser)
        num_beyond = self._num_generated - self._decay.start
        growth = math.exp(min(num_beyond * math.log(self._decay.factor), MOST_GROWTH)) - 1
        logp[ids] += (np.abs(scores) * growth).astype(np.float32)

    def accept(self) -> None:
        self._num_generated += 1

    def fork(self) -> "StopGrowth":
        return StopGrowth(self._decay, self._stop_ids, self._is_beam, self._num_generated)


class Timestamps:
    """Applies the rules of timestamps to one row.

    last: the last timestamp that was generated. was_timestamp: for the last two tokens, whether
        each was a timestamp, the older one first; the first token counts as preceded by one.
    """

    def __init__(
        self,
        rules: TimestampRules,
        last: int | None = None,
        was_timestamp: tuple[bool, bool] = (True, False),
        is_first: bool = True,
    ) -> None:
        self._rules, self._last = rules, last
        self._was_timestamp, self._is_first = was_timestamp, is_first

    def apply(self, logp: Array) -> bool:
        """Set the tokens of one row that must not come next to -inf, f32 [vocabulary]. Return
        whether a token is left.
        """
        rules, first = self._rules, self._rules.first_id
        before_last, last = self._was_timestamp
        logp[rules.no_timestamps_id] = -np.inf
        if self._is_first:
            logp[:first] = -np.inf
            if rules.max_initial_index is not None:
                logp[first + rules.max_initial_index + 1 :] = -np.inf
        elif last and before_last:
            logp[first:] = -np.inf
        elif last:
            logp[: rules.end_id] = -np.inf
        if self._last is not None:
            # The end of a segment may be its next one's beginning, but not its own beginning.
            ends_segment = last and not before_last
            logp[first : self._last + (not ends_segment)] = -np.inf
        likeliest_word = logp[:first].max()
        likeliest = logp[first:].max(initial=-np.inf)
        if np.isneginf(likeliest):
            return not np.isneginf(likeliest_word)
        total = likeliest + np.log(np.exp(logp[first:] - likeliest).sum())
        if total > likeliest_word:
            logp[:first] = -np.inf
        return True

    def accept(self, token_id: int) -> None:
        is_timestamp = token_id >= self._rules.first_id
        self._was_timestamp = (self._is_first or self._was_timestamp[1], is_timestamp)
        self._is_first = False
        if is_timestamp:
            self._last = token_id

    def fork(self) -> "Timestamps":
        return Timestamps(self._rules, self._last, self._was_timestamp, self._is_first)


def _make_stop_growth(generation: Generation) -> StopGrowth | None:
    decay = generation.model_processors.exponential_decay_length_penalty
    if decay is None or not generation.stop_ids:
        return None
    stop_ids = np.array(sorted(generation.stop_ids), np.int64)
    return StopGrowth(decay, stop_ids, generation.request.beam is not None)


def _last(token_ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return token_ids[-count:] if count else ()


@dataclass(frozen=True, slots=True)
class RowProcessors:
    """The processors of one row.

    requested_ids: i64, excluded tokens that this request allows.
    normalises: the scores are made log-probabilities again where they have changed.
    reports_normalised: these are reported, not those of the model's distribution.
    """

    penalties: Penalties | None
    bans: tuple[Ban, ...]
    matchers: tuple[Matcher, ...]
    requested_ids: Array
    stop_growth: StopGrowth | None = None
    normalises: bool = False
    timestamps: Timestamps | None = None
    reports_normalised: bool = False

    def banned_ids(self) -> list[Array]:
        return [token_ids for ban in self.bans if len(token_ids := ban.banned_ids())]

    def accept(self, token_id: int) -> None:
        if self.penalties is not None:
            self.penalties.accept(token_id)
        for ban in self.bans:
            ban.accept(token_id)
        for matcher in self.matchers:
            matcher.accept(token_id)
        if self.stop_growth is not None:
            self.stop_growth.accept()
        if self.timestamps is not None:
            self.timestamps.accept(token_id)

    def fork(self) -> "RowProcessors":
        return RowProcessors(
            None if self.penalties is None else self.penalties.fork(),
            tuple(ban.fork() for ban in self.bans),
            tuple(matcher.fork() for matcher in self.matchers),
            self.requested_ids,
            None if self.stop_growth is None else self.stop_growth.fork(),
            self.normalises,
            None if self.timestamps is None else self.timestamps.fork(),
        )


def make_row_processors(
    generation: Generation, vocab_size: int, requested_ids: Array
) -> RowProcessors | None:
    """Return the processors of a request; None if it needs none."""
    params, model_processors = generation.request.processors, generation.model_processors
    has_changes = (
        params.repetition_penalty != 1
        or params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.logit_bias
        or model_processors.encoder_repetition_penalty != 1
    )
    penalties = Penalties(generation, vocab_size) if has_changes else None
    bans, matchers = make_bans(generation), _make_matchers(generation, vocab_size)
    stop_growth = _make_stop_growth(generation)
    timestamps = None if params.timestamps is None else Timestamps(params.timestamps)
    if not (has_changes or bans or matchers or stop_growth or timestamps):
        return None
    ranks_normalised = model_processors.renormalize_logits and generation.request.beam is not None
    return RowProcessors(
        penalties,
        bans,
        matchers,
        requested_ids,
        stop_growth,
        params.renormalizes or ranks_normalised,
        timestamps,
        reports_normalised=params.renormalizes,
    )


class AllowedTokens:
    """A matcher without state: it allows the same tokens at every step."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask

    def fill_mask(self, mask: Mask) -> None:
        mask[:] = self._mask

    def accept(self, token_id: int) -> None:
        pass

    def fork(self) -> Matcher:
        return self


def _make_matchers(generation: Generation, vocab_size: int) -> tuple[Matcher, ...]:
    request = generation.request
    matchers: list[Matcher] = []
    if request.processors.allowed_ids is not None:
        mask = np.zeros(vocab_size, bool)
        mask[[*request.processors.allowed_ids, *generation.stop_ids]] = True
        matchers.append(AllowedTokens(mask))
    if request.constraint is not None:
        matchers.append(request.constraint.start())
    return tuple(matchers)
