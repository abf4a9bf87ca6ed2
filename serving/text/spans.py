"""A stretch of a text."""

from typing import NamedTuple


class Span(NamedTuple):
    """Marks the characters [start, end) of a text."""

    start: int
    end: int
