"""What rows have to tell after a step: tokens and, of those that generate alone, their ends."""

from dataclasses import dataclass, field

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.generation import Generation
from serving.engine.memory import Array
from serving.engine.search import Choices, Scores
from serving.request import Attention, FinishedEvent, FinishReason, TokenEvent, TokenLogprob


@dataclass(slots=True)
class Decoded:
    """What a step brought. left_rows: those that nobody needs any more, still to be removed.
    num_copies: of rows, by beam search.
    """

    tokens: list[TokenEvent]
    ends: list[tuple[Generation, FinishedEvent]] = field(default_factory=list)
    left_rows: list[int] = field(default_factory=list)
    num_copies: int = 0


class Reporter:
    """Reads the batch as it was during the step, before it advances."""

    def __init__(self, manifest: Manifest, batch: Batch) -> None:
        self._batch = batch
        self._is_stop = np.zeros(manifest.vocab_size, bool)
        self._is_stop[list(manifest.tokens.stop)] = True
        self._heads = manifest.alignment_heads

    def report(self, choices: Choices, scores: Scores) -> Decoded:
        """Of the rows that generate alone."""
        rows = scores.num_rows
        is_alone = ~self._batch.is_beam[:rows]
        if not is_alone.any():
            return Decoded([])
        is_stopped = self._stopped(choices.token_ids)
        self._mind_what_is_known(is_alone, is_stopped)
        is_dead = self._dead(scores)
        is_told = is_alone & ~is_stopped & ~is_dead
        decoded = Decoded(self._tokens(np.flatnonzero(is_told), choices, scores))
        is_ended = is_alone & (is_stopped | is_dead | (self._num_left(rows) == 1))
        for row in np.flatnonzero(is_ended).tolist():
            if is_dead[row]:
                event = self._end(row, FinishReason.CONSTRAINT, 0)
            elif is_stopped[row]:
                reason = self._reason(row, bool(self._num_left(rows)[row] == 1))
                event = self._end(row, reason, 1, float(choices.logprobs[row]))
            else:
                event = self._end(row, FinishReason.LENGTH, 1)
            decoded.ends.append((self._batch.generations[row], event))
            decoded.left_rows.append(row)
        return decoded

    def token(self, row: int, token_id: int, logprob: float, scores: Scores) -> TokenEvent:
        """What a request is told of a token that one of its rows has taken."""
        generation = self._batch.generations[row]
        request = generation.request
        top = _top(scores, row, request.logprobs) if request.logprobs else ()
        attention = self._attention(generation, row, scores) if generation.needs_attention else None
        return TokenEvent(request.request_id, token_id, logprob, top, attention)

    def _tokens(self, rows: Array, choices: Choices, scores: Scores) -> list[TokenEvent]:
        columns = rows.tolist(), choices.token_ids[rows].tolist(), choices.logprobs[rows].tolist()
        return [self.token(*each, scores) for each in zip(*columns, strict=True)]

    def _reason(self, row: int, is_last: bool) -> FinishReason:
        """Why it ends with a stop token, which at its last one may be forced."""
        is_forced = is_last and self._batch.generations[row].last_id is not None
        return FinishReason.LENGTH if is_forced else FinishReason.STOP

    def _end(
        self, row: int, reason: FinishReason, num_new: int, stop_logprob: float | None = None
    ) -> FinishedEvent:
        batch = self._batch
        num_generated = int(batch.num_generated[row])
        num_generated += num_new if batch.num_known[row] == 0 else 0
        return batch.generations[row].finished(reason, num_generated, stop_logprob)

    def _num_left(self, rows: int) -> Array:
        """How many tokens each row may still take, the one it takes now included."""
        batch = self._batch
        left: Array = batch.num_known[:rows] + batch.max_generated[:rows]
        return left - batch.num_generated[:rows]

    def _stopped(self, token_ids: Array) -> Array:
        is_stopped: Array = self._is_stop[token_ids]
        for row in np.flatnonzero(self._batch.has_own_stops[: len(token_ids)]):
            is_stopped[row] = token_ids[row] in self._batch.generations[row].stop_ids
        return is_stopped

    def _dead(self, scores: Scores) -> Array:
        """Rows that find no token that may come, and are not given one."""
        if scores.edited is None:
            return np.zeros(scores.num_rows, bool)
        is_dead: Array = scores.edited.is_dead & (self._batch.num_known[: scores.num_rows] == 0)
        return is_dead

    def _mind_what_is_known(self, is_alone: Array, is_stopped: Array) -> None:
        """Tokens of a prompt are not told, and of those given in advance only the last of all may
        end a request.
        """
        batch = self._batch
        for row in np.flatnonzero(batch.num_known[: len(is_alone)]):
            num_prompt = len(batch.generations[row].prompt_ids)
            is_alone[row] &= batch.total_lengths[row] >= num_prompt
            is_stopped[row] &= batch.num_known[row] + batch.max_generated[row] == 1

    def _attention(self, generation: Generation, row: int, scores: Scores) -> Attention:
        """Mean over the chosen heads: f32 [source tokens]."""
        assert scores.attention is not None, "the step was run without attention"
        heads = list(generation.request.attention_heads or self._heads)
        chosen = scores.attention[row, heads, : generation.num_source_tokens]
        mean: Attention = chosen.mean(axis=0)
        return mean


def _top(scores: Scores, row: int, count: int) -> tuple[TokenLogprob, ...]:
    ids, logprobs = scores.likeliest_ids[row, :count], scores.likeliest_logp[row, :count]
    return tuple(map(TokenLogprob, ids.tolist(), logprobs.tolist()))
