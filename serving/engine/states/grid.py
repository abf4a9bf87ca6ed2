"""Says in which shapes the step graph runs: for how many rows, over how many source positions.

The CPU takes every shape as it comes. On a device all launches of a shape are recorded when the
engine starts, so there shapes are few, and what is missing to the next one is padded.
"""

from typing import Protocol

from serving.engine.states.kind import round_span

LEAST_SPAN = 64


class Grid(Protocol):
    def rows(self, num_rows: int, slots: int) -> int:
        """Round rows up to a shape, at most `slots`."""

    def span(self, num_tokens: int, longest: int) -> int:
        """Round source tokens up to a shape, at most `longest`."""


class Exact:
    def rows(self, num_rows: int, slots: int) -> int:
        return num_rows

    def span(self, num_tokens: int, longest: int) -> int:
        return round_span(num_tokens)


EXACT = Exact()


class Coarse:
    """Has rows of at most a third too many, and powers of two as spans."""

    def rows(self, num_rows: int, slots: int) -> int:
        step = max(1, 1 << (num_rows - 1).bit_length() >> 2)
        return min(-(-num_rows // step) * step, slots)

    def span(self, num_tokens: int, longest: int) -> int:
        return min(max(1 << max(num_tokens - 1, 0).bit_length(), LEAST_SPAN), longest)


def all_rows(grid: Grid, slots: int) -> list[int]:
    return sorted({grid.rows(num_rows, slots) for num_rows in range(1, slots + 1)})


def all_spans(grid: Grid, longest: int) -> list[int]:
    return sorted({grid.span(num_tokens, longest) for num_tokens in range(1, longest + 1)})
