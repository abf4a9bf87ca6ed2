"""Follows how far required terms have come in a text, token by token: a long text costs no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from serving.parameters import Term, TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """Holds one way to write a term.

    term: its number.
    """

    term: int
    ids: TokenIds
    is_bare: bool


class Terms:
    """Holds the terms of a request.

    sizes: of each term the tokens of its longest spelling.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = terms
        self.sizes = [max(map(len, term.spellings + term.bare)) for term in terms]
        self.spellings = [
            Spelling(number, ids, is_bare)
            for number, term in enumerate(terms)
            for is_bare, way in ((False, term.spellings), (True, term.bare))
            for ids in way
        ]
        self._by_first: dict[int, list[Spelling]] = {}
        for spelling in self.spellings:
            self._by_first.setdefault(spelling.ids[0], []).append(spelling)

    def beginning(self, token_id: int, last_id: int | None) -> list[Spelling]:
        """List spellings that begin with a token, after another one or at the start of the text."""
        found = self._by_first.get(token_id, ())
        return [spelling for spelling in found if self.may_begin(spelling, last_id)]

    def may_begin(self, spelling: Spelling, last_id: int | None) -> bool:
        is_open = last_id is None or last_id in self.terms[spelling.term].opening_ids
        return is_open or not spelling.is_bare


@dataclass(frozen=True, slots=True)
class Progress:
    """Says how far the terms have come.

    written: terms that are there as words of their own.
    ended: terms that the text ends with; a token that goes on with the word undoes them.
    begun: spellings of which the text ends with so many tokens, but not all.
    """

    terms: Terms
    last_id: int | None = None
    written: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    begun: tuple[tuple[Spelling, int], ...] = ()

    def after(self, token_id: int) -> "Progress":
        terms = self.terms
        kept = [each for each in self.ended if token_id not in terms.terms[each].inner_ids]
        grown = [(each, num + 1) for each, num in self.begun if each.ids[num] == token_id]
        grown += [(each, 1) for each in terms.beginning(token_id, self.last_id)]
        return Progress(
            terms,
            token_id,
            self.written.union(kept),
            frozenset(each.term for each, num in grown if num == len(each.ids)),
            tuple((each, num) for each, num in grown if num < len(each.ids)),
        )

    def after_all(self, token_ids: TokenIds) -> "Progress":
        return reduce(Progress.after, token_ids, self)

    @property
    def is_complete(self) -> bool:
        """Tell whether all terms are met, as far as the text goes."""
        return len(self.written | self.ended) == len(self.terms.sizes)

    @property
    def num_met(self) -> int:
        """Count the terms' tokens that are met; those of a term that is being written count too."""
        met = self.written | self.ended
        longest: dict[int, int] = {}
        for spelling, num in self.begun:
            if spelling.term not in met:
                longest[spelling.term] = max(longest.get(spelling.term, 0), num)
        return sum(self.terms.sizes[each] for each in met) + sum(longest.values())

    def next_ids(self) -> list[int]:
        """List tokens that bring a term further: of each spelling the one after the most of it that
        the text ends with.
        """
        met = self.written | self.ended
        longest = dict(sorted(self.begun, key=lambda each: each[1]))
        ids = [
            spelling.ids[longest.get(spelling, 0)]
            for spelling in self.terms.spellings
            if spelling.term not in met
            and (spelling in longest or self.terms.may_begin(spelling, self.last_id))
        ]
        return list(dict.fromkeys(ids))
