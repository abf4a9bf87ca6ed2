"""Constrains a beam search lexically: terms must occur in the output.

Dynamic beam allocation (Post and Vilar 2018): beams are ranked within banks, by how many tokens of
the terms they have met, and the banks share the beam. A hypothesis may end once it has met all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from serving.engine.beam.group import Beam, BeamGroup, Continuation, EventOf, Expansion
from serving.engine.beam.hypotheses import Ended, Node, Pool
from serving.engine.beam.terms import Progress, Terms
from serving.engine.generation import Generation
from serving.request import FinishReason, TokenEvent


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LexicalBeam(Beam):
    """Adds how far the terms have come in the beam's tokens."""

    progress: Progress


@dataclass(frozen=True, slots=True, eq=False)
class LexicalGroup(BeamGroup):
    """Shares the beam out among hypotheses by how much of the terms they have met.

    Terms may begin in tokens given in advance: those are part of the output.
    """

    @property
    def may_prune(self) -> bool:
        return False  # a bank's best beam may be worse than all that has ended

    def wanted(self, beam: Beam) -> Sequence[int]:
        return _progress(beam).next_ids()

    def grown(self, parent: Beam, row: int, logprob: float, event: TokenEvent) -> Beam:
        progress = _progress(parent).after(event.token_id)
        return LexicalBeam(row, logprob, Node(event, parent.node), progress=progress)

    def expand(self, continuations: Iterable[Continuation], event_of: EventOf) -> Expansion:
        is_last = self.num_generated + 1 == self.generation.max_new_tokens
        banks: dict[int, list[Continuation]] = {}
        ended: list[Ended] = []
        num_complete = 0
        for each in continuations:
            progress = self._after(each)
            num_complete += progress.is_complete
            is_stop = each[2] in self.generation.stop_ids
            if is_stop or is_last:
                if progress.is_complete and num_complete <= self.num_beams:
                    ended.append(self.end(each, self.reason(is_stop, is_last), event_of))
                elif not is_stop:
                    ended.append(self.end(each, FinishReason.CONSTRAINT, event_of))
            else:
                banks.setdefault(progress.num_met, []).append(each)
        return self.expansion(self._shared_out(banks), ended)

    def _shared_out(self, banks: dict[int, list[Continuation]]) -> list[Continuation]:
        """Take the best of every bank in turn, from the one that has met most."""
        turns = zip_longest(*(banks[num_met] for num_met in sorted(banks, reverse=True)))
        chosen = [each for turn in turns for each in turn if each is not None]
        return sorted(chosen[: self.num_beams], key=itemgetter(0), reverse=True)

    def _after(self, continuation: Continuation) -> Progress:
        _, place, token_id = continuation
        progress = _progress(self.beams[place])
        return progress if token_id in self.generation.stop_ids else progress.after(token_id)


def start_lexical_group(generation: Generation, row: int) -> LexicalGroup:
    params = generation.request.beam
    assert params is not None
    beam = LexicalBeam(row, progress=Progress(Terms(generation.request.required)))
    return LexicalGroup(generation, (beam,), Pool(params, generation.max_new_tokens))


def _progress(beam: Beam) -> Progress:
    assert isinstance(beam, LexicalBeam)
    return beam.progress
