"""Describes a step's decision, as a value: all that comes of the scores, before anything changes.

`Search.decide` makes it and only reads; `Rows.apply` carries it out; the engine emits its events.
"""

from dataclasses import dataclass, field
from typing import Protocol

from serving.arrays import Array
from serving.engine.generation import Generation
from serving.request import FinishedEvent, TokenEvent


@dataclass(frozen=True, slots=True)
class RowCopy:
    """Says that row `target` is to stand where row `source` stands after the step; both go on.

    target: a row of the same generation, or the row behind the last one.
    num_shared: how many first positions of their states are equal already.
    """

    source: int
    target: int
    num_shared: int = 0


class SearchState(Protocol):
    """Holds what a search over several rows remembers. Only that search looks inside."""

    @property
    def generation(self) -> Generation: ...


@dataclass(slots=True)
class Decision:
    """Holds everything that one step decides.

    token_ids: i64 [rows], every row's next token, in the order of rows after the copies.
    is_given: bool [rows], whose token was given in advance.
    is_next: bool [rows], who takes a token; nothing changes of the others.
    copies: in the order in which new rows are numbered.
    searches: the searches over several rows that took a step, as they go on.
    events: tokens to report, in order.
    endings: generations that end, after those tokens.
    finished_rows: rows that nobody needs any more.
    """

    token_ids: Array
    is_given: Array
    is_next: Array
    copies: list[RowCopy] = field(default_factory=list)
    searches: list[SearchState] = field(default_factory=list)
    events: list[TokenEvent] = field(default_factory=list)
    endings: list[tuple[Generation, FinishedEvent]] = field(default_factory=list)
    finished_rows: list[int] = field(default_factory=list)
