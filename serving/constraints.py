"""Defines what a grammar must offer the engine: which tokens may come next. Nothing here knows
grammars.

A constraint is compiled once, where text is known (`serving/text/grammars.py`); every row
that is bound by it has a matcher of its own.
"""

from typing import Any, Protocol

import numpy as np

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Matcher(Protocol):
    """Where one row stands in its grammar."""

    def allowed(self, mask: Mask) -> None:
        """Set `mask` [vocabulary] to the tokens that may come next.

        A stop token may come where the text so far is whole. No token at all is a dead end.
        """

    def accept(self, token_id: int) -> None:
        """Take a token, one of those allowed."""

    def fork(self) -> "Matcher":
        """Return a matcher in the same place, for another row."""


class Constraint(Protocol):
    def start(self) -> Matcher: ...
