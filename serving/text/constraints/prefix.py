"""Constrains a generation to begin with a text, in whatever tokens the model chooses."""

from collections import defaultdict
from functools import cached_property

from serving.requests.request import Constraint, Mask, Matcher
from serving.text.token_bytes import without_leading
from serving.text.tokenizer import Tokenizer


class PrefixConstraints:
    """Makes constraints for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def constraint(self, text: str, begins_text: bool = True) -> Constraint:
        """Constrain what is generated to begin with the text.

        begins_text: nothing has been written before it.
        """
        return _PrefixConstraint(self, *self._prefix_bytes(text, begins_text))

    def has_token(self, text: str, begins_text: bool = True) -> bool:
        """Check that a token alone begins with the text."""
        prefix, leading = self._prefix_bytes(text, begins_text)
        pieces = map(self.token_bytes, self.matching_ids(prefix, leading))
        return any(without_leading(piece, leading)[0].startswith(prefix) for piece in pieces)

    def _prefix_bytes(self, text: str, begins_text: bool) -> tuple[bytes, int]:
        """Return the bytes to be written, and how many spaces are lost before them."""
        table = self._tokenizer.table
        if table.drops_last_space:  # the word before has written the space
            return text.lstrip(" ").encode(), 0
        return text.encode(), table.leading if begins_text else 0

    def matching_ids(self, prefix: bytes, leading: int) -> list[int]:
        """Return the tokens that `prefix` begins with, or that begin with it, without leading
        spaces.
        """
        ids = self._ids_by_byte[prefix[0]]
        if leading and not prefix.startswith(b" "):
            ids = [*ids, *self._ids_by_byte[ord(" ")]]
        return [
            i for i in ids if _may_begin(without_leading(self.token_bytes(i), leading)[0], prefix)
        ]

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)

    @cached_property
    def _ids_by_byte(self) -> dict[int, list[int]]:
        ids: dict[int, list[int]] = defaultdict(list)
        for token_id in range(self._tokenizer.vocab_size):
            if text := self.token_bytes(token_id):
                ids[text[0]].append(token_id)
        return ids


class _PrefixConstraint:
    def __init__(self, constraints: PrefixConstraints, prefix: bytes, leading: int) -> None:
        self._constraints, self._prefix, self._leading = constraints, prefix, leading

    def start(self) -> Matcher:
        return _PrefixMatcher(self._constraints, self._prefix, self._leading)


class _PrefixMatcher:
    """Follows one text.

    prefix: what is still to come; after that everything may.
    leading: how many spaces the text still loses where it begins.
    has_space: a token of nothing but such spaces has come; others would never end.
    """

    def __init__(
        self, constraints: PrefixConstraints, prefix: bytes, leading: int, has_space: bool = False
    ) -> None:
        self._constraints, self._prefix, self._leading = constraints, prefix, leading
        self._has_space = has_space

    def fill_mask(self, mask: Mask) -> None:
        mask[:] = not self._prefix
        if self._prefix:
            ids = self._constraints.matching_ids(self._prefix, self._leading)
            if self._has_space:
                ids = [i for i in ids if self._text(i)[0]] or ids
            mask[ids] = True

    def accept(self, token_id: int) -> None:
        text, self._leading = self._text(token_id)
        self._has_space = self._has_space or not text
        self._prefix = self._prefix[len(text) :]

    def fork(self) -> Matcher:
        return _PrefixMatcher(self._constraints, self._prefix, self._leading, self._has_space)

    def _text(self, token_id: int) -> tuple[bytes, int]:
        """Return what a token adds, and how many spaces are lost after it."""
        return without_leading(self._constraints.token_bytes(token_id), self._leading)


def _may_begin(text: bytes, prefix: bytes) -> bool:
    return text.startswith(prefix) or prefix.startswith(text)
