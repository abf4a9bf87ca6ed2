"""Decide the next token of every row: given in advance, sampled, or found by beam search.

Reads scores, rows and the states of searches without changing them: deciding twice gives the same
decision.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from serving.bundle.manifest import AttentionKind, Manifest
from serving.engine.arrays import Array
from serving.engine.attention_map import attention_pieces
from serving.engine.decoding.beam_search import BeamGroups, BeamSearch
from serving.engine.decoding.logits_processors import (
    Exclusions,
    Processors,
    force_ends,
    rows_at_their_end,
)
from serving.engine.decoding.sampler import Sampler
from serving.engine.decoding.scores import SampledTokens, Scores
from serving.engine.generation import Ending, Generation
from serving.engine.rows import Batch, Decision, RowObserver
from serving.requests.request import (
    AttentionPieces,
    AttentionWeights,
    FinishReason,
    TokenEvent,
    TokenLogprob,
)

LOOP_CHECK_TOKENS = 16  # a check of a row for loops is due after so many


class Search:
    def __init__(self, manifest: Manifest, batch: Batch, excluded_ids: Iterable[int] = ()) -> None:
        self._batch = batch
        self.exclusions = Exclusions(manifest, excluded_ids)
        self.processors = Processors(batch.slots, manifest.vocab_size, self.exclusions)
        self.sampler = Sampler(batch.slots, manifest.vocab_size, manifest.limits.max_target_tokens)
        self._groups = BeamGroups()
        self._outcomes = Outcomes(manifest, batch)
        self._beam_search = BeamSearch(self._groups, self._outcomes.token_event)

    @property
    def row_observers(self) -> tuple[RowObserver, ...]:
        """Return the objects that keep data for each row."""
        return self.processors, self.sampler, self._groups

    @property
    def needs_logp(self) -> bool:
        """Return whether the next decision needs more than the likeliest tokens."""
        num_rows = self._batch.num_rows
        return (
            self.exclusions.are_any
            or bool(self._batch.needs_logp[:num_rows].any())
            or len(rows_at_their_end(self._batch, num_rows)) > 0
        )

    def decide(self, scores: Scores) -> Decision:
        ending_rows = rows_at_their_end(self._batch, scores.num_rows)
        scores.leave_to_host(ending_rows)
        self.exclusions.apply(scores)
        self._edit(scores, ending_rows)
        choices = self.sampler.choose(scores, self._batch.num_generated[: scores.num_rows])
        is_forced = self._take_given(choices, scores)
        decision = Decision(choices.token_ids, is_forced, scores.is_next)
        self._outcomes.decide(decision, choices.logprobs, scores)
        if self._groups.groups:
            self._beam_search.decide(decision, scores)
        return decision

    def _edit(self, scores: Scores, ending_rows: Array) -> None:
        self.processors.edit(scores, ending_rows)
        if len(ending_rows):
            assert scores.edited is not None
            force_ends(scores.edited, self._batch, ending_rows)

    def _take_given(self, choices: SampledTokens, scores: Scores) -> Array:
        """Replace choices by tokens that are given in advance, independent of their scores; return
        where, bool [rows].
        """
        batch = self._batch
        is_forced: Array = batch.num_forced[: scores.num_rows] > 0
        rows = np.flatnonzero(is_forced)
        for row in rows:
            choices.token_ids[row] = batch.generations[row].prefix_ids[batch.total_lengths[row]]
        if len(rows):
            choices.logprobs[rows] = scores.of_tokens(rows, choices.token_ids[rows])
        return is_forced


class Outcomes:
    """The reported tokens and the endings of a step. Reads the batch as it was during the step."""

    def __init__(self, manifest: Manifest, batch: Batch) -> None:
        self._batch = batch
        self._is_stop = np.zeros(manifest.vocab_size, bool)
        self._is_stop[list(manifest.tokens.stop)] = True

    def decide(self, decision: Decision, logprobs: Array, scores: Scores) -> None:
        """Add the reported tokens and the endings of all rows without beam search.

        logprobs: f32 [rows], of the tokens that the rows take.
        """
        token_ids, num_rows = decision.token_ids, len(decision.token_ids)
        is_single = (~self._batch.is_beam[:num_rows] | decision.is_forced) & decision.is_next
        if not is_single.any():
            return
        logprobs = np.where(self._batch.returns_logprobs[:num_rows], logprobs, 0)
        is_stopped = self._stopped(token_ids)
        self._skip_given_tokens(is_single, is_stopped, decision.is_forced)
        is_dead = _dead(scores, decision.is_forced)
        decision.reported_rows = np.flatnonzero(is_single & ~is_stopped & ~is_dead).tolist()
        self._tell(decision, logprobs, scores)
        num_left = self._num_left(num_rows)
        is_last = (num_left == 1) | self._looping(num_rows)
        is_ended = is_single & (is_stopped | is_dead | is_last)
        for row in np.flatnonzero(is_ended).tolist():
            if is_dead[row]:
                ending = self._ending(row, FinishReason.CONSTRAINT, 0)
            elif is_stopped[row]:
                reason = self._stop_reason(row, is_last=bool(num_left[row] == 1))
                ending = self._ending(row, reason, 1)
                ending.stop_logprob, ending.stop_id = float(logprobs[row]), int(token_ids[row])
                ending.end_pieces = self._pieces(row, scores)
            else:
                ending = self._ending(row, FinishReason.LENGTH, 1)
            decision.endings.append(ending)
            decision.finished_rows.append(row)

    def token_event(
        self, generation: Generation, row: int, token_id: int, logprob: float, scores: Scores
    ) -> TokenEvent:
        """Return all that a request asks of a row's token."""
        request = generation.request
        top = _top(scores, row, request.logprobs) if request.logprobs else ()
        alignment = _alignments({row: generation}, scores).get(row)
        pieces = self._pieces(row, scores)
        return TokenEvent(request.request_id, token_id, logprob, top, alignment, pieces)

    def _tell(self, decision: Decision, logprobs: Array, scores: Scores) -> None:
        """Add what requests ask of reported tokens, besides their ids."""
        batch, rows = self._batch, decision.reported_rows
        told = [row for row in rows if batch.needs_token_outputs[row]]
        for row in told:
            generation, token_id = batch.generations[row], int(decision.token_ids[row])
            event = self.token_event(generation, row, token_id, float(logprobs[row]), scores)
            decision.token_outputs[row] = event
            if generation.request.streams:
                decision.events.append(event)
        if scores.attention:
            others = {
                row: batch.generations[row] for row in rows if row not in decision.token_outputs
            }
            decision.alignments = _alignments(others, scores)

    def _pieces(self, row: int, scores: Scores) -> AttentionPieces:
        has_queries = bool(self._batch.generations[row].selections)
        return attention_pieces(self._batch, row, scores) if has_queries else ()

    def _ending(self, row: int, reason: FinishReason, num_new: int) -> Ending:
        batch = self._batch
        num_generated = int(batch.num_generated[row])
        num_generated += num_new if batch.num_forced[row] == 0 else 0
        return Ending(batch.generations[row], reason, num_generated)

    def _stop_reason(self, row: int, is_last: bool) -> FinishReason:
        """Return why a row ends with a stop token, which may be forced if it is the last token."""
        is_forced = is_last and self._batch.generations[row].last_id is not None
        return FinishReason.LENGTH if is_forced else FinishReason.STOP

    def _num_left(self, num_rows: int) -> Array:
        """Return the number of tokens that each row may still take, including the one of this step;
        i64 [rows].
        """
        batch = self._batch
        left: Array = batch.num_forced[:num_rows] + batch.max_generated[:num_rows]
        return left - batch.num_generated[:num_rows]

    def _looping(self, num_rows: int) -> Array:
        """Return which rows end because the tokens before this step loop; bool [rows]. Given tokens
        are not counted, so that when a row is checked depends on its own tokens alone.
        """
        batch = self._batch
        is_due = batch.num_generated[:num_rows] % LOOP_CHECK_TOKENS == LOOP_CHECK_TOKENS - 1
        is_looping: Array = batch.ends_loops[:num_rows] & is_due
        for row in np.flatnonzero(is_looping):
            is_looping[row] = batch.generations[row].has_loop()
        return is_looping

    def _stopped(self, token_ids: Array) -> Array:
        """Return which tokens are stop tokens of their requests; bool [rows]."""
        is_stopped: Array = self._is_stop[token_ids]
        for row in np.flatnonzero(self._batch.has_own_stops[: len(token_ids)]):
            is_stopped[row] = token_ids[row] in self._batch.generations[row].stop_ids
        return is_stopped

    def _skip_given_tokens(self, is_single: Array, is_stopped: Array, is_forced: Array) -> None:
        """Skip the events of prompt tokens, and do not let given tokens end a request, except for
        the last one.
        """
        batch = self._batch
        for row in np.flatnonzero(is_forced):
            num_prompt = len(batch.generations[row].prompt_ids)
            is_single[row] &= batch.total_lengths[row] >= num_prompt
            is_stopped[row] &= batch.num_forced[row] + batch.max_generated[row] == 1


def _alignments(
    generations: Mapping[int, Generation], scores: Scores
) -> dict[int, AttentionWeights]:
    """Return the mean of the alignment heads, f32 [source tokens], of the rows whose requests ask
    for it. Rows with the same heads are averaged in one call.
    """
    of_heads: dict[tuple[int, ...], list[int]] = {}
    for row, generation in generations.items():
        if generation.alignment is not None:
            of_heads.setdefault(generation.alignment.heads, []).append(row)
    found: dict[int, AttentionWeights] = {}
    for heads, rows in of_heads.items():
        weights = scores.attention[AttentionKind.CROSS][np.ix_(rows, heads)]
        means = weights.mean(axis=1, dtype=np.float32)
        for row, mean in zip(rows, means, strict=True):
            found[row] = mean[: generations[row].num_source_tokens].copy()
    return found


def _dead(scores: Scores, is_forced: Array) -> Array:
    """Return the rows in which no token is allowed and none is given; bool [rows]."""
    is_dead = np.zeros(len(is_forced), bool)
    if scores.edited is not None:
        is_dead |= scores.edited.is_dead
    if scores.chosen is not None:
        is_dead |= scores.chosen.is_dead & scores.chosen.is_chosen
    return is_dead & ~is_forced


def _top(scores: Scores, row: int, count: int) -> tuple[TokenLogprob, ...]:
    ids, logprobs = scores.likeliest_ids[row, :count], scores.likeliest_logp[row, :count]
    return tuple(map(TokenLogprob, ids.tolist(), logprobs.tolist()))
