"""Constrains generation to a term at a given place."""

from dataclasses import dataclass

from serving.constraints import Mask, Matcher
from serving.parameters import TokenIds
from serving.request import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Insertion:
    """Constrains generation to a few tokens of the model's choice, a term, and the tokens after it.

    num_free: tokens that the model chooses before the term; `unwanted_ids` are not allowed there.
    spaced_ids: the term with a space before it. bare_ids: without one, for after `opening_ids`.
    following_ids: the tokens after the term. If empty, the model goes on freely, but not with one
        of `inner_ids`, which would make the term a part of a longer word.
    """

    num_free: int
    spaced_ids: TokenIds
    bare_ids: TokenIds
    following_ids: TokenIds
    opening_ids: frozenset[int]
    inner_ids: Ids
    unwanted_ids: Ids

    def start(self) -> Matcher:
        return _InsertionMatcher(self, self.num_free, self.spaced_ids + self.following_ids)


class _InsertionMatcher:
    """num_free: tokens that are left before the term. given: tokens that must come after those."""

    def __init__(
        self, insertion: Insertion, num_free: int, given: TokenIds, is_after_term: bool = False
    ) -> None:
        self._insertion = insertion
        self._num_free, self._given = num_free, given
        self._is_after_term = is_after_term

    def allowed(self, mask: Mask) -> None:
        mask[:] = self._num_free > 0 or not self._given
        if self._num_free:
            mask[self._insertion.unwanted_ids] = False
        elif self._given:
            mask[self._given[0]] = True
        elif self._is_after_term:
            mask[self._insertion.inner_ids] = False

    def accept(self, token_id: int) -> None:
        insertion = self._insertion
        if self._num_free:
            self._num_free -= 1
            if token_id in insertion.opening_ids and not self._num_free:
                self._given = insertion.bare_ids + insertion.following_ids
        else:
            self._is_after_term = len(self._given) == 1 and not insertion.following_ids
            self._given = self._given[1:]

    def fork(self) -> Matcher:
        return _InsertionMatcher(self._insertion, self._num_free, self._given, self._is_after_term)
