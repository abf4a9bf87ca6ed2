"""Holds the rows in use: generations and, beside them, the numbers a graph reads for every row.

Rows are the prefix [0, num_rows); a row that leaves is filled by the last one. The arrays are bound
to the step graph in place: writing here is feeding it.
"""

import time

import numpy as np

from serving.arrays import Array
from serving.engine.generation import Generation


class Batch:
    """Gives a generation one row, or one for each of its live beams.

    num_given: how many of a row's next tokens are given in advance. num_generated: how many of its
    tokens were not. max_generated: how many may be. num_ahead: how many tokens every row has been
    run for that it may not have taken yet. num_steps: how many runs rows have taken tokens of.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.num_ahead = self.num_steps = 0
        self.generations: list[Generation] = []
        self.ids = np.zeros((slots, 1), np.int64)
        self.past_lengths = np.zeros(slots, np.int32)
        self.total_lengths = np.ones(slots, np.int32)
        self.source_lengths = np.ones(slots, np.int32)
        self.num_given = np.zeros(slots, np.int64)
        self.num_generated = np.zeros(slots, np.int64)
        self.max_generated = np.zeros(slots, np.int64)
        self.is_beam = np.zeros(slots, bool)
        self.has_own_stops = np.zeros(slots, bool)
        self.needs_attention = np.zeros(slots, bool)
        self.needs_logp = np.zeros(slots, bool)
        self.tells_logprobs = np.zeros(slots, bool)
        self._columns: tuple[Array, ...] = (
            self.ids,
            self.past_lengths,
            self.total_lengths,
            self.source_lengths,
            self.num_given,
            self.num_generated,
            self.max_generated,
            self.is_beam,
            self.has_own_stops,
            self.needs_attention,
            self.needs_logp,
            self.tells_logprobs,
        )

    @property
    def num_rows(self) -> int:
        return len(self.generations)

    @property
    def num_free(self) -> int:
        """Count the slots that no generation has or may claim: a beam search has all of its rows'
        from the start.
        """
        return self.slots - sum(each.request.num_rows for each in set(self.generations))

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """Give a generation the next row, whose states hold so many of its given tokens."""
        row = self.num_rows
        generation.entered_at, generation.entered_step = time.perf_counter(), self.num_steps
        self.ids[row, 0] = generation.given_ids[num_prefilled]
        self.past_lengths[row] = num_prefilled
        self.total_lengths[row] = num_prefilled + 1
        self.source_lengths[row] = max(generation.num_source_tokens, 1)
        self.num_given[row] = len(generation.given_ids) - num_prefilled - 1
        self.num_generated[row] = 0
        self.max_generated[row] = generation.max_new_tokens
        self.is_beam[row] = generation.request.beam is not None
        self.has_own_stops[row] = generation.has_own_stops
        self.needs_attention[row] = bool(generation.told_kinds)
        self.needs_logp[row] = generation.needs_logp
        self.tells_logprobs[row] = generation.tells_logprobs
        self.generations.append(generation)
        return row

    def fork(self, parent: int) -> int:
        """Give the generation of a row one more, which stands where that one stands."""
        row = self.num_rows
        self.generations.append(self.generations[parent])
        for column in self._columns:
            column[row] = column[parent]
        return row

    def remove(self, row: int) -> int | None:
        """Take a row out. Returns the row that has to be moved into its place, if any."""
        last = self.num_rows - 1
        moved = self.generations.pop()
        if row == last:
            return None
        self.generations[row] = moved
        for column in self._columns:
            column[row] = column[last]
        return last

    def pad(self, num_rows: int) -> None:
        """Let free rows, up to so many in all, read one token at the beginning: a graph that runs
        over them too writes nothing that is read.
        """
        free = slice(self.num_rows, num_rows)
        self.ids[free] = self.past_lengths[free] = 0
        self.total_lengths[free] = self.source_lengths[free] = 1

    def advance(self, token_ids: Array, is_next: Array) -> None:
        """Give rows one more token, those that are `is_next`, bool [rows]; if they had given ones
        they have one of them less.
        """
        rows = len(token_ids)
        self.num_ahead -= 1
        is_given = (self.num_given[:rows] > 0) & is_next
        np.copyto(self.ids[:rows, 0], token_ids, where=is_next)
        self.past_lengths[:rows] += is_next
        self.total_lengths[:rows] += is_next
        self.num_generated[:rows] += is_next & ~is_given
        self.num_given[:rows] -= is_given
