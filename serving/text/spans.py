"""Spans of characters in a text."""

from typing import NamedTuple


class Span(NamedTuple):
    """The characters [start, end) of a text."""

    start: int
    end: int
