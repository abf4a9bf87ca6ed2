"""Lexically constrained beam search: terms that must occur in the output.

Dynamic beam allocation (Post and Vilar 2018): beams are ranked within banks, by how many tokens of
the terms they have met, and the banks share the beam. A hypothesis may end once it has met all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from serving.engine.beam_group import Beam, BeamGroup, Candidate, Tell
from serving.engine.generation import Generation
from serving.engine.hypotheses import Node, tokens_until
from serving.parameters import Term, TokenIds
from serving.request import FinishReason


@dataclass(frozen=True)
class Progress:
    """num_met: of the terms' tokens, those of a term that is being written included. next_ids: what
    may bring a term further.
    """

    is_complete: bool
    num_met: int
    next_ids: tuple[int, ...]


def progress_of(terms: Sequence[Term], text: TokenIds) -> Progress:
    """How far the terms have come in a text; the best of each term's spellings counts."""
    num_met, is_complete, next_ids = 0, True, []
    for term in terms:
        spellings = _spellings_of(term)
        if any(each.occurs_in(text) for each in spellings):
            num_met += max(len(each.ids) for each in spellings)
            continue
        is_complete = False
        begun = [(each.num_begun(text), each) for each in spellings]
        next_ids += [each.ids[num] for num, each in begun if num is not None]
        num_met += max(num or 0 for num, _ in begun)
    return Progress(is_complete, num_met, tuple(dict.fromkeys(next_ids)))


@dataclass(frozen=True, slots=True)
class Spelling:
    term: Term
    ids: TokenIds
    is_bare: bool

    def occurs_in(self, text: TokenIds) -> bool:
        """Whether it is there as a word of its own, as far as the text goes."""
        size = len(self.ids)
        return any(
            text[start : start + size] == self.ids
            and self._may_begin(text, start)
            and not self.term.inner_ids.intersection(text[start + size : start + size + 1])
            for start in range(len(text) - size + 1)
        )

    def num_begun(self, text: TokenIds) -> int | None:
        """How many of its tokens the text ends with; None where it could not begin."""
        for num in range(min(len(self.ids) - 1, len(text)), -1, -1):
            start = len(text) - num
            if text[start:] == self.ids[:num] and self._may_begin(text, start):
                return num
        return None

    def _may_begin(self, text: TokenIds, start: int) -> bool:
        return not self.is_bare or start == 0 or text[start - 1] in self.term.opening_ids


def _spellings_of(term: Term) -> list[Spelling]:
    separate = [Spelling(term, ids, is_bare=False) for ids in term.spellings]
    return separate + [Spelling(term, ids, is_bare=True) for ids in term.bare]


class LexicalGroup(BeamGroup):
    """Terms may begin in forced tokens: those are part of the output."""

    def __init__(self, generation: Generation, row: int) -> None:
        super().__init__(generation, row)
        self._terms = generation.request.required
        self._may_prune = False  # a bank's best beam may be worse than all that has ended

    def wanted(self, beam: Beam) -> Sequence[int]:
        return self._progress(beam.node).next_ids

    def choose(
        self, candidates: Iterable[Candidate], num_tokens: int, tell: Tell
    ) -> list[Candidate]:
        is_last = num_tokens == self.generation.max_new_tokens
        banks: dict[int, list[Candidate]] = {}
        num_complete = 0
        for candidate in candidates:
            progress = self._after(candidate)
            num_complete += progress.is_complete
            is_stop = candidate[2] in self.generation.stop_ids
            if is_stop or is_last:
                if progress.is_complete and num_complete <= self.num_beams:
                    reason = FinishReason.STOP if is_stop else FinishReason.LENGTH
                    self._end(candidate, reason, num_tokens, tell)
                elif not is_stop:
                    self._end(candidate, FinishReason.CONSTRAINT, num_tokens, tell)
            else:
                banks.setdefault(progress.num_met, []).append(candidate)
        self._pool.trim()
        return self._useful(self._shared_out(banks), num_tokens)

    def _shared_out(self, banks: dict[int, list[Candidate]]) -> list[Candidate]:
        """The best of every bank in turn, from the one that has met most."""
        turns = zip_longest(*(banks[num_met] for num_met in sorted(banks, reverse=True)))
        chosen = [each for turn in turns for each in turn if each is not None]
        return sorted(chosen[: self.num_beams], key=itemgetter(0), reverse=True)

    def _after(self, candidate: Candidate) -> Progress:
        _, place, token_id = candidate
        is_stop = token_id in self.generation.stop_ids
        return self._progress(self.beams[place].node, () if is_stop else (token_id,))

    def _progress(self, node: Node | None, more: TokenIds = ()) -> Progress:
        ids = tuple(token.token_id for token in tokens_until(node))
        return progress_of(self._terms, ids + more)
