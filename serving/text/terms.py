"""Finds terms in texts: as whole words, in capitals or not.

In scripts that put no space between words, and in Korean, whose words take endings, every character
may begin or end a term.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from serving.requests.parameters import TokenIds
from serving.requests.request import Constraint, Ids, Mask, Matcher
from serving.text.tokenizer import Tokenizer
from serving.text.tokenizer_json import without_leading

# Thai and Lao, Burmese, Hangul, Khmer, kana, Han
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W{_WITHOUT_SPACES}]"
_WORD = re.compile(rf"[{_WITHOUT_SPACES}]|{_LETTER}+")
# Letters, with hyphens among them; what is elided, as in "l'eau", is a word of its own.
HYPHENATED_WORD = re.compile(rf"[{_WITHOUT_SPACES}]|{_LETTER}+(?:-{_LETTER}+)*")

_LONGEST_RUN = 8  # words by which longer terms are told apart


class Words:
    """The words of a text, by which the terms that may occur in it are found at once, however
    many terms there are.
    """

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._runs: dict[int, set[tuple[str, ...]]] = {}

    def first_words(self) -> set[str]:
        """Return what `first_word` is of all terms that may occur."""
        return {"", *self._words}

    def may_have(self, term: str) -> bool:
        """Check that the words of a term follow each other somewhere, whatever is between them."""
        words = tuple(_words(term)[:_LONGEST_RUN])
        return not words or words in self._runs_of(len(words))

    def _runs_of(self, length: int) -> set[tuple[str, ...]]:
        if length not in self._runs:
            shifted = (self._words[start:] for start in range(length))
            self._runs[length] = set(zip(*shifted, strict=False))
        return self._runs[length]


def first_word(term: str) -> str:
    """Return the word by which a term is looked up; empty for one without words."""
    return next(iter(_words(term)), "")


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


@lru_cache(maxsize=4096)
def term_pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!{_LETTER}){re.escape(term)}(?!{_LETTER})", re.IGNORECASE)


def terms_pattern(terms: Iterable[str]) -> re.Pattern[str]:
    """Match any of several terms, written exactly so; the longest of those that begin together."""
    longest_first = sorted(terms, key=len, reverse=True)
    return re.compile(rf"(?<!{_LETTER})(?:{'|'.join(map(re.escape, longest_first))})(?!{_LETTER})")


_OPENING = tuple("'’‘-–—/([{«“\"‹")  # words follow these without a space, as in "l'eau"
_PART_OF_CHARACTER = "\ufffd"


class WordBorders:
    """Sorts the tokens of one tokenizer; each set is made when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def inner_ids(self) -> frozenset[int]:
        """Return the tokens that go on with a word; so may a part of a character: most are letters.
        None if a word's last token says that it is the last.
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

    def fill_mask(self, mask: Mask) -> None:
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


class Beginnings:
    """Makes constraints for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def constraint(self, text: str, begins_text: bool = True) -> Constraint:
        """Constrain what is generated to begin with the text.

        begins_text: nothing has been written before it.
        """
        return _Beginning(self, *self._wanted(text, begins_text))

    def has_token(self, text: str, begins_text: bool = True) -> bool:
        """Check that a token alone begins with the text."""
        wanted, leading = self._wanted(text, begins_text)
        pieces = map(self.token_bytes, self.that_may_come(wanted, leading))
        return any(without_leading(piece, leading)[0].startswith(wanted) for piece in pieces)

    def _wanted(self, text: str, begins_text: bool) -> tuple[bytes, int]:
        """Return the bytes to be written, and how many spaces are lost before them."""
        table = self._tokenizer.table
        if table.drops_last_space:  # the word before has written the space
            return text.lstrip(" ").encode(), 0
        return text.encode(), table.leading if begins_text else 0

    def that_may_come(self, wanted: bytes, leading: int) -> list[int]:
        """Return the tokens that `wanted` begins with, or that begin with it, without leading
        spaces.
        """
        ids = self._ids_by_byte[wanted[0]]
        if leading and not wanted.startswith(b" "):
            ids = [*ids, *self._ids_by_byte[ord(" ")]]
        return [i for i in ids if _fits(without_leading(self.token_bytes(i), leading)[0], wanted)]

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
    def __init__(self, beginnings: Beginnings, wanted: bytes, leading: int) -> None:
        self._beginnings, self._wanted, self._leading = beginnings, wanted, leading

    def start(self) -> Matcher:
        return _BeginningMatcher(self._beginnings, self._wanted, self._leading)


class _BeginningMatcher:
    """Follows one text.

    wanted: what is still to come; after that everything may.
    leading: how many spaces the text still loses where it begins.
    has_space: a token of nothing but such spaces has come; others would never end.
    """

    def __init__(
        self, beginnings: Beginnings, wanted: bytes, leading: int, has_space: bool = False
    ) -> None:
        self._beginnings, self._wanted, self._leading = beginnings, wanted, leading
        self._has_space = has_space

    def fill_mask(self, mask: Mask) -> None:
        mask[:] = not self._wanted
        if self._wanted:
            ids = self._beginnings.that_may_come(self._wanted, self._leading)
            if self._has_space:
                ids = [i for i in ids if self._text(i)[0]] or ids
            mask[ids] = True

    def accept(self, token_id: int) -> None:
        text, self._leading = self._text(token_id)
        self._has_space = self._has_space or not text
        self._wanted = self._wanted[len(text) :]

    def fork(self) -> Matcher:
        return _BeginningMatcher(self._beginnings, self._wanted, self._leading, self._has_space)

    def _text(self, token_id: int) -> tuple[bytes, int]:
        """Return what a token adds, and how many spaces are lost after it."""
        return without_leading(self._beginnings.token_bytes(token_id), self._leading)


def _fits(text: bytes, wanted: bytes) -> bool:
    return text.startswith(wanted) or wanted.startswith(text)
