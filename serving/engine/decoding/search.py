"""Decide the next token of every row: forced, sampled, or chosen by beam search.

Reads scores, rows and the states of searches without changing them: deciding twice gives the same
decision.
"""

from collections.abc import Iterable

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array
from serving.engine.decoding.beam_search import BeamGroups, BeamSearch
from serving.engine.decoding.logits_processors import (
    Exclusions,
    Processors,
    force_ends,
    rows_at_their_end,
)
from serving.engine.decoding.sampler import Sampler
from serving.engine.decoding.scores import NOTHING, Scores
from serving.engine.decoding.stop_checker import StopChecker
from serving.engine.decoding.token_outputs import add_token_outputs
from serving.engine.rows import Batch, Decision, RowObserver


class Search:
    """Chooses tokens, and says what follows from them.

    exclusions, processors, sampler: they define how the rows' tokens are chosen, also on a device.
    row_observers: the objects that keep data for each row.
    """

    def __init__(self, manifest: Manifest, batch: Batch, excluded_ids: Iterable[int] = ()) -> None:
        self._batch = batch
        self.exclusions = Exclusions(manifest, excluded_ids)
        self.processors = Processors(batch.slots, manifest.vocab_size, self.exclusions)
        self.sampler = Sampler(batch.slots, manifest.vocab_size)
        self._groups = BeamGroups()
        self._stop_checker = StopChecker(manifest, batch)
        self._beam_search = BeamSearch(self._groups, batch)
        self._forces_ends = manifest.tokens.forced_eos is not None
        self.row_observers: tuple[RowObserver, ...] = self.processors, self.sampler, self._groups

    @property
    def needs_logp(self) -> bool:
        """Return whether the next decision needs more than the likeliest tokens."""
        num_rows = self._batch.num_rows
        return (
            self.exclusions.are_any
            or bool(self._batch.needs_logp[:num_rows].any())
            or (self._forces_ends and len(rows_at_their_end(self._batch, num_rows)) > 0)
        )

    def decide(self, scores: Scores) -> Decision:
        """Return what follows from the scores of a step."""
        batch, num_rows = self._batch, scores.num_rows
        ending_rows = rows_at_their_end(batch, num_rows) if self._forces_ends else NOTHING
        if len(ending_rows):
            scores.choose_on_host(ending_rows)
        if self.exclusions.are_any:
            self.exclusions.apply(scores)
        if self.processors.rows or len(ending_rows):
            self.processors.edit(scores, ending_rows)
            force_ends(scores, batch, ending_rows)

        tokens = self.sampler.choose(scores, batch.num_generated[:num_rows])
        is_forced: Array = batch.num_forced[:num_rows] > 0
        forced_rows = np.flatnonzero(is_forced)
        for row in forced_rows:  # independent of their scores
            tokens.token_ids[row] = batch.generations[row].prefix_ids[batch.total_lengths[row]]
        if len(forced_rows):
            forced_ids = tokens.token_ids[forced_rows]
            tokens.logprobs[forced_rows] = scores.of_tokens(forced_rows, forced_ids)

        decision = Decision(tokens.token_ids, is_forced)
        logprobs = np.where(batch.returns_logprobs[:num_rows], tokens.logprobs, 0)
        self._stop_checker.check(decision, logprobs, scores)
        if scores.attention or batch.needs_token_outputs[:num_rows].any():
            add_token_outputs(decision, batch, logprobs, scores)
        if batch.awaits_scored[:num_rows].any():
            self._score_ids(decision, scores)
        if self._groups.groups:
            self._beam_search.decide(decision, scores)
        return decision

    def _score_ids(self, decision: Decision, scores: Scores) -> None:
        """Add the log-probabilities that requests ask for at the end of their prompts."""
        batch = self._batch
        for row in np.flatnonzero(batch.awaits_scored[: scores.num_rows]).tolist():
            generation = batch.generations[row]
            if batch.total_lengths[row] == len(generation.prompt_ids):
                token_ids = np.array(generation.request.scored_ids)
                logprobs = scores.of_tokens(np.full(len(token_ids), row), token_ids)
                decision.scored_logprobs[row] = tuple(logprobs.tolist())
