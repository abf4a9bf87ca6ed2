"""A word that has been typed half: what is generated must begin with it, in whatever tokens.

Forced tokens would not do: "c" has tokens of its own, which "court" or "chat" do not begin with.
"""

from collections import defaultdict
from functools import cached_property

from serving.constraints import Constraint, Mask, Matcher
from serving.text.tokenizer import Tokenizer


class Beginnings:
    """Of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def constraint(self, text: str) -> Constraint:
        return _Beginning(self, text.encode())

    def that_may_come(self, wanted: bytes) -> list[int]:
        """The tokens that `wanted` begins with, or that begin with it."""
        return [i for i in self._ids_by_byte[wanted[0]] if _fits(self.token_bytes(i), wanted)]

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)

    @cached_property
    def _ids_by_byte(self) -> dict[int, list[int]]:
        ids: dict[int, list[int]] = defaultdict(list)
        for token_id in range(self._tokenizer.vocab_size):
            if text := self.token_bytes(token_id):
                ids[text[0]].append(token_id)
        return ids


class _Beginning:
    def __init__(self, beginnings: Beginnings, wanted: bytes) -> None:
        self._beginnings, self._wanted = beginnings, wanted

    def start(self) -> Matcher:
        return _BeginningMatcher(self._beginnings, self._wanted)


class _BeginningMatcher:
    """wanted: what is still to come; after that everything may."""

    def __init__(self, beginnings: Beginnings, wanted: bytes) -> None:
        self._beginnings, self._wanted = beginnings, wanted

    def allowed(self, mask: Mask) -> None:
        mask[:] = not self._wanted
        if self._wanted:
            mask[self._beginnings.that_may_come(self._wanted)] = True

    def accept(self, token_id: int) -> None:
        self._wanted = self._wanted[len(self._beginnings.token_bytes(token_id)) :]

    def fork(self) -> Matcher:
        return _BeginningMatcher(self._beginnings, self._wanted)


def _fits(text: bytes, wanted: bytes) -> bool:
    return text.startswith(wanted) or wanted.startswith(text)
