"""Holds what a model carries from token to token: a frozen dataclass for each family."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from torch import Tensor


@dataclass(frozen=True)
class State:
    """Has fields of tensors whose first axis is the batch, alone or in tuples, and of what all
    rows share: numbers, and None for what there is not yet.
    """

    def select(self, rows: Tensor) -> Self:
        """Take these rows of every tensor, in this order; a row may come more than once."""
        found = {each.name: _select(getattr(self, each.name), rows) for each in fields(self)}
        return replace(self, **found)


def _select(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(value, tuple):
        return tuple(_select(part, rows) for part in value)
    return value
