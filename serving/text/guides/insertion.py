"""Guides what is generated to contain given tokens at a given place."""

from dataclasses import dataclass

from serving.constraints import Mask, Matcher
from serving.parameters import TokenIds
from serving.request import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Insertion:
    """Constrains what is generated to some tokens that the model chooses, a term, and what follows.

    num_free: how many tokens come before the term; none of them is one of `unwanted_ids`.
    spaced_ids: the term with the space before it. bare_ids: without, for after `opening_ids`.
    following_ids: the tokens right after the term. Where there are none, anything may follow but
        `inner_ids`, with which the term would be a part of a longer word.
    """

    num_free: int
    spaced_ids: TokenIds
    bare_ids: TokenIds
    following_ids: TokenIds
    opening_ids: frozenset[int]
    inner_ids: Ids
    unwanted_ids: Ids

    def start(self) -> Matcher:
        given = self.spaced_ids + self.following_ids
        return _InsertionMatcher(self, self.num_free, given)


class _InsertionMatcher:
    """Follows one text.

    num_free: tokens to come before the term.
    given: the tokens to come from there on.
    """

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
