"""Decides every row's next token: given in advance, drawn, or found by beam search.

It reads scores, rows and what searches remember, and changes none of them: to decide twice is to
decide the same.
"""

from collections.abc import Iterable

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.beam.groups import BeamGroups
from serving.engine.beam.search import BeamSearch
from serving.engine.decision import Decision
from serving.engine.exchange.selector import Deciders
from serving.engine.outcomes import Outcomes
from serving.engine.processing.endings import force_ends, rows_at_their_end
from serving.engine.processing.exclusions import Exclusions
from serving.engine.processing.processors import Processors
from serving.engine.rows import Follower
from serving.engine.sampling.sampler import Sampler
from serving.engine.scores import Choices, Scores


class Search:
    def __init__(self, manifest: Manifest, batch: Batch, excluded_ids: Iterable[int] = ()) -> None:
        self._batch = batch
        self._exclusions = Exclusions(manifest, excluded_ids)
        self._processors = Processors(batch.slots, manifest.vocab_size, self._exclusions)
        self._sampler = Sampler(batch.slots, manifest.vocab_size, manifest.limits.max_target_tokens)
        self._groups = BeamGroups()
        self._outcomes = Outcomes(manifest, batch)
        self._beam_search = BeamSearch(self._groups, self._outcomes.token_event)

    @property
    def deciders(self) -> Deciders:
        """Return what knows how the rows' tokens are chosen, for a device that does it."""
        return Deciders(self._processors, self._sampler, self._exclusions.is_excluded)

    @property
    def followers(self) -> tuple[Follower, ...]:
        """List what remembers something of each row."""
        return self._processors, self._sampler, self._groups

    @property
    def needs_logp(self) -> bool:
        """Tell whether the next decision needs more than which tokens are the likeliest."""
        num_rows = self._batch.num_rows
        return (
            self._exclusions.are_any
            or bool(self._batch.needs_logp[:num_rows].any())
            or len(rows_at_their_end(self._batch, num_rows)) > 0
        )

    def decide(self, scores: Scores) -> Decision:
        ending_rows = rows_at_their_end(self._batch, scores.num_rows)
        scores.leave_to_host(ending_rows)
        self._exclusions.apply(scores)
        self._edit(scores, ending_rows)
        choices = self._sampler.choose(scores, self._batch.num_generated[: scores.num_rows])
        is_given = self._take_given(choices, scores)
        decision = Decision(choices.token_ids, is_given, scores.is_next)
        self._outcomes.decide(decision, choices.logprobs, scores)
        if self._groups.groups:
            self._beam_search.decide(decision, scores)
        return decision

    def _edit(self, scores: Scores, ending_rows: Array) -> None:
        self._processors.edit(scores, ending_rows)
        if len(ending_rows):
            assert scores.edited is not None
            force_ends(scores.edited, self._batch, ending_rows)

    def _take_given(self, choices: Choices, scores: Scores) -> Array:
        """Put in the tokens that are given in advance, whatever their score; bool [rows]."""
        batch = self._batch
        is_given: Array = batch.num_given[: scores.num_rows] > 0
        rows = np.flatnonzero(is_given)
        for row in rows:
            choices.token_ids[row] = batch.generations[row].given_ids[batch.total_lengths[row]]
        if len(rows):
            choices.logprobs[rows] = scores.of_tokens(rows, choices.token_ids[rows])
        return is_given
