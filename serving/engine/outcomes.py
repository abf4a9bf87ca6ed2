"""Decides what a step brings a row that does not search: a token to report, or an end."""

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import AttentionKind, Manifest
from serving.engine.attention.looking import looked_of
from serving.engine.batch import Batch
from serving.engine.decision import Decision
from serving.engine.generation import Generation
from serving.engine.scores import Scores
from serving.request import Attention, FinishedEvent, FinishReason, Looked, TokenEvent, TokenLogprob


class Outcomes:
    """Reads the batch as it was during the step."""

    def __init__(self, manifest: Manifest, batch: Batch) -> None:
        self._batch = batch
        self._is_stop = np.zeros(manifest.vocab_size, bool)
        self._is_stop[list(manifest.tokens.stop)] = True
        self._heads = manifest.alignment_heads

    def decide(self, decision: Decision, logprobs: Array, scores: Scores) -> None:
        """Add the events and endings of all rows but those that search.

        logprobs: f32 [rows], of the tokens that the rows take.
        """
        token_ids, num_rows = decision.token_ids, len(decision.token_ids)
        is_single = (~self._batch.is_beam[:num_rows] | decision.is_given) & decision.is_next
        if not is_single.any():
            return
        logprobs = np.where(self._batch.tells_logprobs[:num_rows], logprobs, 0)
        is_stopped = self._stopped(token_ids)
        self._skip_given_tokens(is_single, is_stopped, decision.is_given)
        is_dead = _dead(scores, decision.is_given)
        is_reported = is_single & ~is_stopped & ~is_dead
        decision.events += self._events(np.flatnonzero(is_reported), token_ids, logprobs, scores)
        num_left = self._num_left(num_rows)
        is_ended = is_single & (is_stopped | is_dead | (num_left == 1))
        for row in np.flatnonzero(is_ended).tolist():
            if is_dead[row]:
                event = self._ending(row, FinishReason.CONSTRAINT, 0)
            elif is_stopped[row]:
                reason = self._stop_reason(row, is_last=bool(num_left[row] == 1))
                looked = looked_of(self._batch, row, scores) if self._looks(row) else ()
                event = self._ending(row, reason, 1, float(logprobs[row]), looked)
            else:
                event = self._ending(row, FinishReason.LENGTH, 1)
            decision.endings.append((self._batch.generations[row], event))
            decision.finished_rows.append(row)

    def token_event(
        self, generation: Generation, row: int, token_id: int, logprob: float, scores: Scores
    ) -> TokenEvent:
        """Return the report of a token that a row of the generation takes."""
        request = generation.request
        top = _top(scores, row, request.logprobs) if request.logprobs else ()
        attention = self._attention(generation, row, scores) if generation.needs_attention else None
        looked = looked_of(self._batch, row, scores) if generation.sights else ()
        return TokenEvent(request.request_id, token_id, logprob, top, attention, looked)

    def _events(
        self, rows: Array, token_ids: Array, logprobs: Array, scores: Scores
    ) -> list[TokenEvent]:
        generations = self._batch.generations
        columns = rows.tolist(), token_ids[rows].tolist(), logprobs[rows].tolist()
        return [
            self.token_event(generations[row], row, token_id, logprob, scores)
            for row, token_id, logprob in zip(*columns, strict=True)
        ]

    def _looks(self, row: int) -> bool:
        return bool(self._batch.generations[row].sights)

    def _ending(
        self,
        row: int,
        reason: FinishReason,
        num_new: int,
        stop_logprob: float | None = None,
        end_looked: Looked = (),
    ) -> FinishedEvent:
        batch = self._batch
        num_generated = int(batch.num_generated[row])
        num_generated += num_new if batch.num_given[row] == 0 else 0
        generation = batch.generations[row]
        return generation.finished(reason, num_generated, stop_logprob, end_looked=end_looked)

    def _stop_reason(self, row: int, is_last: bool) -> FinishReason:
        """Say why a row ends with a stop token, which at its last one may be forced."""
        is_forced = is_last and self._batch.generations[row].last_id is not None
        return FinishReason.LENGTH if is_forced else FinishReason.STOP

    def _num_left(self, num_rows: int) -> Array:
        """Count the tokens each row may still take, the one it takes now included; i64 [rows]."""
        batch = self._batch
        left: Array = batch.num_given[:num_rows] + batch.max_generated[:num_rows]
        return left - batch.num_generated[:num_rows]

    def _stopped(self, token_ids: Array) -> Array:
        """Tell which tokens are stop tokens of their requests; bool [rows]."""
        is_stopped: Array = self._is_stop[token_ids]
        for row in np.flatnonzero(self._batch.has_own_stops[: len(token_ids)]):
            is_stopped[row] = token_ids[row] in self._batch.generations[row].stop_ids
        return is_stopped

    def _skip_given_tokens(self, is_single: Array, is_stopped: Array, is_given: Array) -> None:
        """Do not report tokens of a prompt; of the given tokens let only the last of all end a
        request.
        """
        batch = self._batch
        for row in np.flatnonzero(is_given):
            num_prompt = len(batch.generations[row].prompt_ids)
            is_single[row] &= batch.total_lengths[row] >= num_prompt
            is_stopped[row] &= batch.num_given[row] + batch.max_generated[row] == 1

    def _attention(self, generation: Generation, row: int, scores: Scores) -> Attention:
        """Average the attention of the chosen heads; f32 [source tokens]."""
        heads = list(generation.request.attention_heads or self._heads)
        chosen = scores.attention[AttentionKind.CROSS][row, heads, : generation.num_source_tokens]
        mean: Attention = chosen.mean(axis=0)
        return mean


def _dead(scores: Scores, is_given: Array) -> Array:
    """Find rows in which no token may come and none is given; bool [rows]."""
    is_dead = np.zeros(len(is_given), bool)
    if scores.edited is not None:
        is_dead |= scores.edited.is_dead
    if scores.chosen is not None:
        is_dead |= scores.chosen.is_dead & scores.chosen.is_chosen
    return is_dead & ~is_given


def _top(scores: Scores, row: int, count: int) -> tuple[TokenLogprob, ...]:
    ids, logprobs = scores.likeliest_ids[row, :count], scores.likeliest_logp[row, :count]
    return tuple(map(TokenLogprob, ids.tolist(), logprobs.tolist()))
