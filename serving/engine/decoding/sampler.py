"""Sample the next token of rows after temperature and filters, or take the most likely one.

Most draws need only the step graph's window of the likeliest tokens: their probabilities bound the
probabilities outside it. If this is not enough, or a processor has changed the scores, the whole
row is used.
"""

from collections.abc import Iterator

import numpy as np

from serving.engine.arrays import Array
from serving.engine.decoding.sampling_filters import (
    LEAST_LOG,
    FilteredRanking,
    FilteredWeights,
    apply_filters,
    rows_needing_ranking,
)
from serving.engine.decoding.sampling_inputs import (
    NUM_PARAMS,
    RandomNumbers,
    SamplingInputs,
    sampling_column,
)
from serving.engine.decoding.scores import Edited, SampledTokens, Scores
from serving.engine.generation import Generation
from serving.engine.rows import RowObserver

ROUNDING = 1e-5  # larger than the rounding error of the sum of one row's float32 probabilities
ROUNDINGS = np.array([[-ROUNDING], [ROUNDING]])
LEAST_RESTS = np.array([[1e-300], [ROUNDING]])
BLOCK = 64  # tokens whose weights are summed before one of them is searched
NUM_CANDIDATES = (256, 2048)  # filters rarely keep more tokens
MAX_ROWS = 16  # at a time, so that they stay in the cache
MAX_RANKED = 16384  # tokens at a time, in all rows
ANY_WEIGHT = np.array([[0], [1e300]])  # the widest bounds
# Positions whose random numbers are drawn at once. A block takes 2.4 us, most of it the call; the
# numbers of a whole context of 131,072 tokens would take 2.6 ms of the engine's thread.
RANDOM_BLOCK = 64


class Sampler(RowObserver):
    """Keeps the sampling parameters and random numbers of each row.

    is_sampled: bool [slots], the rows that are sampled.
    """

    def __init__(self, slots: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.is_sampled = np.zeros(slots, bool)
        self._whole_rows = WholeRows(vocab_size)
        self._params = np.zeros((NUM_PARAMS, slots))
        self._random_numbers = RandomNumbers()
        self._seeds = np.zeros(slots, np.uint64)
        self._blocks = np.zeros(slots, np.int64)  # which block of its stream a row has drawn
        self._numbers = np.zeros((slots, RANDOM_BLOCK, 2))

    def on_add(self, row: int, generation: Generation) -> None:
        params = generation.request.sampling
        self.is_sampled[row] = not params.is_greedy
        if params.is_greedy:
            return
        self._params[:, row] = sampling_column(params, self._vocab_size)
        self._seeds[row] = generation.seed
        self._draw_block(row, 0)

    def on_copy(self, source: int, target: int) -> None:
        self.is_sampled[target] = self.is_sampled[source]
        if self.is_sampled[source]:  # beam search copies rows at every step, but does not sample
            self._params[:, target] = self._params[:, source]
            self._seeds[target] = self._seeds[source]
            self._blocks[target] = self._blocks[source]
            self._numbers[target] = self._numbers[source]

    def on_move(self, source: int, target: int) -> None:
        self.on_copy(source, target)
        self.on_remove(source)

    def on_remove(self, row: int) -> None:
        self.is_sampled[row] = False

    def choose(self, scores: Scores, num_generated: Array) -> SampledTokens:
        """Return a token for each row. num_generated: i64 [rows], the number of tokens that each
        row has generated.
        """
        tokens = SampledTokens(scores.top_ids[:, 0].copy(), scores.top_logp[:, 0].copy())
        is_drawn = self.is_sampled[: scores.num_rows]
        if scores.device_tokens is not None:
            chosen = scores.device_tokens
            rows = np.flatnonzero(chosen.is_chosen)
            tokens.token_ids[rows] = chosen.token_ids[rows]
            tokens.logprobs[rows] = chosen.logprobs[rows]
            is_drawn = is_drawn & ~chosen.is_chosen
        changed = drawn = np.flatnonzero(is_drawn)
        if scores.edited is not None:
            is_edited = scores.edited.is_edited
            self._choose_edited(scores.edited, num_generated, tokens.token_ids)
            changed, drawn = np.flatnonzero(is_drawn | is_edited), drawn[~is_edited[drawn]]
        if len(drawn):
            inputs = self.sampling_inputs(drawn, num_generated[drawn])
            tokens.token_ids[drawn] = self._draw(scores, drawn, inputs)
        if len(changed):
            tokens.logprobs[changed] = scores.reported_logprobs(changed, tokens.token_ids[changed])
        return tokens

    def _choose_edited(self, edited: Edited, num_generated: Array, token_ids: Array) -> None:
        """Choose tokens for rows whose scores were edited; rows without an allowed token keep their
        token.
        """
        is_sampled = self.is_sampled[: len(token_ids)]
        is_alive = edited.is_edited & ~edited.is_dead
        greedy = np.flatnonzero(is_alive & ~is_sampled)
        drawn = np.flatnonzero(is_alive & is_sampled)
        if len(greedy):
            token_ids[greedy] = edited.logp[greedy].argmax(axis=1)
        if len(drawn):
            window = np.empty((len(drawn), 0), np.int64)
            proposals = np.full(len(drawn), np.inf)
            inputs = self.sampling_inputs(drawn, num_generated[drawn])
            token_ids[drawn] = self._whole_rows.draw(edited.logp, drawn, window, proposals, inputs)

    def _draw(self, scores: Scores, rows: Array, inputs: SamplingInputs) -> Array:
        """Draw from the window if it is enough, else from whole rows; i64 [rows]."""
        every = slice(None) if len(rows) == scores.num_rows else rows
        top_ids = scores.top_ids[every]
        ranks, proposals = draw_from_window(
            scores.top_logp[every], self._vocab_size, inputs, scores.excluded_probability(rows)
        )
        token_ids: Array = top_ids[np.arange(len(rows)), ranks]
        undecided = np.flatnonzero(ranks < 0)
        if len(undecided):
            logp = scores.logp_of(rows[undecided])
            token_ids[undecided] = self._whole_rows.draw(
                logp,
                rows[undecided],
                top_ids[undecided],
                proposals[undecided],
                inputs.select(undecided),
            )
        return token_ids

    def sampling_inputs(self, rows: Array, num_generated: Array) -> SamplingInputs:
        """Return the parameters and random numbers of rows that have generated `num_generated`
        tokens, i64 [len(rows)].
        """
        blocks, positions = np.divmod(num_generated, RANDOM_BLOCK)
        for index in np.flatnonzero(blocks != self._blocks[rows]):
            self._draw_block(int(rows[index]), int(blocks[index]))
        numbers = self._numbers[rows, positions]
        return SamplingInputs(self._params[:, rows], numbers[:, 0], numbers[:, 1])

    def _draw_block(self, row: int, block: int) -> None:
        """Draw the numbers of a block of a row's stream. They depend on its seed alone."""
        seed, first = int(self._seeds[row]), block * RANDOM_BLOCK
        self._numbers[row] = self._random_numbers.draw(seed, first, RANDOM_BLOCK)
        self._blocks[row] = block


def draw_from_window(
    top_logp: Array, vocab_size: int, inputs: SamplingInputs, excluded: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return ranks, i64 [rows], -1 if the window is not enough; and the proposals, f64 [rows]:
    positions in the cumulative weights, where the likeliest token has the weight 1.

    top_logp: f32 [rows, window], best first.
    excluded: f64 [rows], the probability of tokens outside the window that must not be drawn.
    """
    logp = np.maximum(top_logp, LEAST_LOG, dtype=np.float64)
    logs = logp - logp[:, :1]
    logs *= inputs.exponents[:, None]
    num_outside = vocab_size - logp.shape[1]
    is_enough = inputs.most_kept <= logp.shape[1]  # no token outside is kept
    outside = 0.0 if is_enough else _weight_outside(logp, num_outside, inputs.exponents, excluded)
    ranking = FilteredRanking(logs, outside, num_outside)
    apply_filters(ranking, inputs)
    proposals = inputs.numbers * ranking.total[1]
    ranks = ranking.find(proposals)
    is_drawn = proposals < np.minimum(ranking.total[0], ranking.ranked_weight)
    for condition in ranking.conditions:
        is_drawn &= condition(ranks)
    return np.where(is_drawn, ranks, -1), proposals


def _weight_outside(
    logp: Array, num_outside: int, exponents: Array, excluded: Array | float
) -> Array:
    """Return bounds of the total weight of the tokens outside, f64 [2, rows].

    With n probabilities p_i <= p_min (the window's last) that sum to `rest` and the exponent a = 1
    / temperature, the sum of p_i^a lies between rest * p_min^(a - 1) and n^(1 - a) * rest^a (power
    mean inequality; a decides which of the two is the upper bound), and is at most n * p_min^a.
    """
    if not num_outside:
        return np.zeros((2, len(logp)))
    rest = 1 - np.exp(logp).sum(axis=1) - excluded
    log_rest = np.log(np.maximum(rest + ROUNDINGS, LEAST_RESTS))
    log_least, log_num = logp[:, -1], np.log(num_outside)
    by_least = log_rest + (exponents - 1) * log_least
    by_mean = exponents * log_rest + (1 - exponents) * log_num
    log_outside = np.minimum(by_least, by_mean)
    np.maximum(by_least[1], by_mean[1], out=log_outside[1])
    np.minimum(log_outside, log_num + exponents * log_least, out=log_outside)
    log_outside -= exponents * logp[:, 0]
    return np.exp(log_outside)


class WholeRows:
    """Draws from whole rows, in preallocated memory: allocating arrays of this size costs more than
    the computation.
    """

    def __init__(self, vocab_size: int, num_candidates: tuple[int, ...] = NUM_CANDIDATES) -> None:
        self._vocab_size = vocab_size
        self._counts = (*(count for count in num_candidates if count < vocab_size), vocab_size)
        self._weights = np.zeros((MAX_ROWS, -(-vocab_size // BLOCK) * BLOCK), np.float32)
        self._parts = np.empty((MAX_ROWS, vocab_size), np.float32)

    def draw(
        self, scores: Array, rows: Array, top_ids: Array, proposals: Array, inputs: SamplingInputs
    ) -> Array:
        """Draw token ids, i64 [rows].

        scores: f32 [all rows, vocabulary], log-probabilities up to a constant, not all -inf
        rows: i64 [rows], indices of the rows; the other arguments are only for these
        top_ids: i64 [rows, window], tokens to start with; the window may be empty
        proposals: f64 [rows], of a window that was not enough; infinite if there was none
        """
        token_ids = np.empty(len(rows), np.int64)
        needs_ranking = rows_needing_ranking(inputs)
        for part in _split_rows(~needs_ranking, MAX_ROWS):
            token_ids[part] = self._draw_by_blocks(
                scores, rows[part], top_ids[part], proposals[part], inputs.select(part)
            )
        undecided = needs_ranking
        for count in self._counts if undecided.any() else ():
            for part in _split_rows(undecided, min(MAX_ROWS, max(MAX_RANKED // count, 1))):
                token_ids[part] = self._draw_among(
                    count, scores, rows[part], proposals[part], inputs.select(part)
                )
            undecided = undecided & (token_ids < 0)
        return token_ids

    def _draw_by_blocks(
        self, scores: Array, rows: Array, top_ids: Array, proposals: Array, inputs: SamplingInputs
    ) -> Array:
        """Search the first tokens one by one, then the rest by blocks."""
        num_rows, window = top_ids.shape
        row, weights = np.arange(num_rows), self._weights[:num_rows]
        _weigh(scores, rows, inputs, out=weights[:, : self._vocab_size])
        first = weights[row[:, None], top_ids]
        weights[row[:, None], top_ids] = 0
        blocks = weights.reshape(num_rows, -1, BLOCK)
        groups = np.concatenate([first, np.einsum("rbi->rb", blocks)], axis=1, dtype=np.float64)
        sums = groups.cumsum(axis=1)
        targets = inputs.second_numbers * sums[:, -1]
        np.copyto(targets, proposals, where=proposals < sums[:, -1])
        group = (sums > targets[:, None]).argmax(axis=1)
        targets -= sums[row, group] - groups[row, group]
        block = np.maximum(group - window, 0)
        token_ids = block * BLOCK + _find_within(blocks[row, block], targets)
        is_first = np.flatnonzero(group < window)
        token_ids[is_first] = top_ids[is_first, group[is_first]]
        return token_ids

    def _draw_among(
        self,
        num_candidates: int,
        scores: Array,
        rows: Array,
        proposals: Array,
        inputs: SamplingInputs,
    ) -> Array:
        """Search the likeliest tokens, best first; -1 if their number is not enough."""
        parts = np.take(scores, rows, axis=0, out=self._parts[: len(rows)], mode="clip")
        num_others = parts.shape[1] - num_candidates
        if num_others:
            parts.partition(num_others, axis=1)
        ranked, others = np.sort(parts[:, num_others:], axis=1)[:, ::-1], parts[:, :num_others]
        ranks = _draw_ranks(ranked, others, proposals, inputs)
        values = np.take(scores, rows, axis=0, out=self._parts[: len(rows)], mode="clip")
        return np.where(ranks < 0, -1, _token_ids_at(values, ranked, ranks))


def _split_rows(is_selected: Array, size: int) -> Iterator[Array | slice]:
    """Yield the selected rows in parts of `size` rows."""
    selected = np.flatnonzero(is_selected)
    for start in range(0, len(selected), size):
        stop = min(start + size, len(selected))
        yield slice(start, stop) if len(selected) == len(is_selected) else selected[start:stop]


def _weigh(scores: Array, rows: Array, inputs: SamplingInputs, out: Array) -> None:
    """Compute weights: 1 for the likeliest token, 0 for tokens below a filter's threshold."""
    weights = np.take(scores, rows, axis=0, out=out, mode="clip")
    weights -= weights.max(axis=1)[:, None]
    weights *= inputs.exponents.astype(np.float32)[:, None]
    np.exp(weights, out=weights)
    apply_filters(FilteredWeights(weights), inputs)


def _find_within(weights: Array, targets: Array) -> Array:
    """Return the index at which the cumulative weights exceed each target; only tokens with a
    weight above 0 count.
    """
    sums = weights.cumsum(axis=1, dtype=np.float64)
    targets = np.clip(targets, 0, sums[:, -1] * (1 - 1e-12))
    index: Array = (sums > targets[:, None]).argmax(axis=1)
    return index


def _draw_ranks(ranked: Array, others: Array, proposals: Array, inputs: SamplingInputs) -> Array:
    """Draw ranks, i64 [rows], -1 if the candidates are not enough.

    ranked: f32 [rows, candidates], best first
    others: f32 [rows, others], in any order; overwritten
    """
    logs = np.subtract(ranked, ranked[:, :1], dtype=np.float64)
    logs *= inputs.exponents[:, None]
    np.maximum(logs, LEAST_LOG, out=logs)
    others -= ranked[:, :1]
    others *= inputs.exponents.astype(np.float32)[:, None]
    is_of_interest = inputs.most_kept > ranked.shape[1] or not others.size
    outside = np.einsum("rv->r", np.exp(others)) if is_of_interest else ANY_WEIGHT
    ranking = FilteredRanking(logs, outside, others.shape[1], others)
    proposed, is_ranked = ranking.find(proposals), proposals < ranking.ranked_weight
    apply_filters(ranking, inputs)
    is_certain = ranking.is_certain
    is_drawn = is_certain & is_ranked & ranking.surely_keeps(proposed)
    (least, most), seconds = ranking.total, inputs.second_numbers * ranking.total[0]
    is_missed = is_certain & ~is_drawn & (least == most)
    is_missed &= is_ranked | (proposals >= most) | (most <= ranking.ranked_weight)
    is_missed &= seconds < ranking.ranked_weight
    ranks = np.where(is_drawn, proposed, ranking.find(seconds))
    return np.where(is_drawn | is_missed, ranks, -1)


def _token_ids_at(values: Array, ranked: Array, ranks: Array) -> Array:
    """Return the token ids of these ranks; equal values are ranked by id, as in the step graph's
    window.
    """
    value = ranked[np.arange(len(ranks)), ranks][:, None]
    ids: Array = (values == value).argmax(axis=1)
    num_before = ((ranked == value) & (np.arange(ranked.shape[1]) < ranks[:, None])).sum(axis=1)
    for row in np.flatnonzero(num_before):
        ids[row] = np.flatnonzero(values[row] == value[row])[num_before[row]]
    return ids
