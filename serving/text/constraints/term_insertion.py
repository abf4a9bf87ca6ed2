"""Constrains a generation to a term at a given place of a translation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from serving.requests.parameters import TokenIds
from serving.requests.request import Ids, Mask, Matcher
from serving.text.tokenizer import Tokenizer

_OPENING = tuple("'’‘-–—/([{«“\"‹")  # words follow these without a space, as in "l'eau"
_PART_OF_CHARACTER = "\ufffd"


class WordBorders:
    """The tokens of one tokenizer that are within words, and those that words may follow."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def inner_ids(self) -> frozenset[int]:
        """Return the tokens that continue a word. Parts of characters count, too: most characters
        are letters. There are none if the last token of a word tells that it is the last.
        """
        if self._tokenizer.table.drops_last_space:
            return frozenset()
        return self._ids(lambda text: text[0].isalnum() or text[0] in {"_", _PART_OF_CHARACTER})

    @cached_property
    def opening_ids(self) -> frozenset[int]:
        """Return the tokens after which a word may begin without a space."""
        return self._ids(lambda text: text[-1].isspace() or text.endswith(_OPENING))

    def _ids(self, belongs: Callable[[str], bool]) -> frozenset[int]:
        texts = (text.decode(errors="replace") for text in self._tokenizer.table.token_bytes)
        return frozenset(i for i, text in enumerate(texts) if text and belongs(text))


@dataclass(frozen=True, slots=True, eq=False)
class TermInsertion:
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
    """Follows one row.

    num_free: tokens that are left before the term.
    forced_ids: tokens that must come after those.
    """

    def __init__(
        self,
        insertion: TermInsertion,
        num_free: int,
        forced_ids: TokenIds,
        is_after_term: bool = False,
    ) -> None:
        self._insertion = insertion
        self._num_free, self._forced_ids = num_free, forced_ids
        self._is_after_term = is_after_term

    def fill_mask(self, mask: Mask) -> None:
        mask[:] = self._num_free > 0 or not self._forced_ids
        if self._num_free:
            mask[self._insertion.unwanted_ids] = False
        elif self._forced_ids:
            mask[self._forced_ids[0]] = True
        elif self._is_after_term:
            mask[self._insertion.inner_ids] = False

    def accept(self, token_id: int) -> None:
        insertion = self._insertion
        if self._num_free:
            self._num_free -= 1
            if token_id in insertion.opening_ids and not self._num_free:
                self._forced_ids = insertion.bare_ids + insertion.following_ids
        else:
            self._is_after_term = len(self._forced_ids) == 1 and not insertion.following_ids
            self._forced_ids = self._forced_ids[1:]

    def fork(self) -> Matcher:
        return _InsertionMatcher(
            self._insertion, self._num_free, self._forced_ids, self._is_after_term
        )
