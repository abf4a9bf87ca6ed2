"""Check which rows end with a step, and why."""

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array
from serving.engine.attention_map import attention_pieces
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Ending
from serving.engine.rows import Batch, Decision
from serving.requests.request import FinishReason

# A row is checked for loops after so many tokens: a check reads the row's tokens in Python, and a
# translation that has looped for some tokens more is cut where the loop began.
LOOP_CHECK_TOKENS = 16


class StopChecker:
    """Ends rows at their stop tokens, their limits, a loop, or where no token is allowed. Rows of a
    beam search are left out once their forced tokens are over: the search ends its hypotheses.
    """

    def __init__(self, manifest: Manifest, batch: Batch) -> None:
        self._batch = batch
        self._is_stop = np.zeros(manifest.vocab_size, bool)
        self._is_stop[list(manifest.tokens.stop)] = True

    def check(self, decision: Decision, logprobs: Array, scores: Scores) -> None:
        """Add the rows whose tokens are reported, and the endings, to a decision. Reads the batch
        as it was during the step.

        logprobs: f32 [rows], of the tokens that the rows take.
        """
        batch, token_ids, is_forced = self._batch, decision.token_ids, decision.is_forced
        num_rows = len(token_ids)
        is_reported = ~batch.is_beam[:num_rows] | is_forced
        if not is_reported.any():
            return
        is_stop = self._is_stop[token_ids]
        for row in np.flatnonzero(batch.has_own_stops[:num_rows]).tolist():
            is_stop[row] = token_ids[row] in batch.generations[row].stop_ids
        num_left = batch.num_forced[:num_rows] + batch.max_generated[:num_rows]
        for row in np.flatnonzero(is_forced).tolist():
            # Prompt tokens are not reported, and of the forced ones only the very last may end a
            # request.
            is_reported[row] &= batch.total_lengths[row] >= len(batch.generations[row].prompt_ids)
            is_stop[row] &= num_left[row] == 1
        is_dead = _rows_without_tokens(scores, is_forced)
        decision.reported_rows = np.flatnonzero(is_reported & ~is_stop & ~is_dead).tolist()
        is_last = num_left - batch.num_generated[:num_rows] == 1
        is_ended = is_reported & (is_stop | is_dead | is_last | self._rows_that_loop(num_rows))
        for row in np.flatnonzero(is_ended).tolist():
            generation = batch.generations[row]
            num_generated = int(batch.num_generated[row])
            if is_dead[row]:
                ending = Ending(generation, FinishReason.CONSTRAINT, num_generated)
            else:
                num_generated += int(batch.num_forced[row] == 0)
                ending = Ending(generation, FinishReason.LENGTH, num_generated)
            if is_stop[row] and not is_dead[row]:
                if not is_last[row] or generation.last_id is None:  # else it was forced at the end
                    ending.reason = FinishReason.STOP
                ending.stop_logprob, ending.stop_id = float(logprobs[row]), int(token_ids[row])
                ending.end_pieces = attention_pieces(batch, row, scores)
            decision.endings.append(ending)
            decision.finished_rows.append(row)

    def _rows_that_loop(self, num_rows: int) -> Array:
        """Return which rows end because the tokens before this step loop; bool [rows]. Forced
        tokens are not counted, so that when a row is checked depends on its own tokens alone.
        """
        batch = self._batch
        is_due = batch.num_generated[:num_rows] % LOOP_CHECK_TOKENS == LOOP_CHECK_TOKENS - 1
        is_looping: Array = batch.ends_loops[:num_rows] & is_due
        for row in np.flatnonzero(is_looping):
            is_looping[row] = batch.generations[row].has_loop()
        return is_looping


def _rows_without_tokens(scores: Scores, is_forced: Array) -> Array:
    """Return the rows in which no token is allowed and none is forced; bool [rows]."""
    is_dead = np.zeros(len(is_forced), bool)
    if scores.edited is not None:
        is_dead |= scores.edited.is_dead
    if scores.device_tokens is not None:
        is_dead |= scores.device_tokens.is_dead & scores.device_tokens.is_chosen
    return is_dead & ~is_forced
