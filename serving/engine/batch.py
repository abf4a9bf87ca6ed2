"""The rows in use: generations and, beside them, the numbers a graph reads for every row.

Rows are the prefix [0, num_rows); a row that leaves is filled by the last one. The arrays are bound
to the step graph in place: writing here is feeding it.
"""

import numpy as np

from serving.engine.generation import Generation
from serving.engine.memory import Array


class Batch:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.generations: list[Generation] = []
        self.ids = np.zeros((slots, 1), np.int64)
        self.past_lengths = np.zeros(slots, np.int32)
        self.total_lengths = np.ones(slots, np.int32)
        self.source_lengths = np.ones(slots, np.int32)
        self.tokens_left = np.zeros(slots, np.int64)
        self._columns: tuple[Array, ...] = (
            self.ids,
            self.past_lengths,
            self.total_lengths,
            self.source_lengths,
            self.tokens_left,
        )

    @property
    def num_rows(self) -> int:
        return len(self.generations)

    @property
    def num_free(self) -> int:
        return self.slots - len(self.generations)

    def add(self, generation: Generation) -> int:
        """Give a generation the next row, as if all but the last of its prompt were prefilled."""
        row = self.num_rows
        num_past = len(generation.prompt_ids) - 1
        self.ids[row, 0] = generation.prompt_ids[-1]
        self.past_lengths[row] = num_past
        self.total_lengths[row] = num_past + 1
        self.source_lengths[row] = max(generation.num_source_tokens, 1)
        self.tokens_left[row] = generation.max_new_tokens
        self.generations.append(generation)
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

    def advance(self, token_ids: Array) -> None:
        """Every row has one more token."""
        rows = len(token_ids)
        self.ids[:rows, 0] = token_ids
        self.past_lengths[:rows] += 1
        self.total_lengths[:rows] += 1
        self.tokens_left[:rows] -= 1
