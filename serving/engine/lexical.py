"""Lexically constrained beam search: terms that must occur in the output.

Dynamic beam allocation (Post and Vilar 2018): beams are ranked within banks, by how many tokens of
the terms they have met, and the banks share the beam. A hypothesis may end once it has met all.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from operator import itemgetter

from serving.engine.beam_group import Beam, BeamGroup, Candidate, Tell
from serving.engine.generation import Generation
from serving.engine.hypotheses import Node
from serving.engine.terms import Progress, Terms
from serving.request import FinishReason, TokenEvent


class LexicalGroup(BeamGroup):
    """Terms may begin in forced tokens: those are part of the output."""

    def __init__(self, generation: Generation, row: int) -> None:
        super().__init__(generation, row)
        self._start = Progress(Terms(generation.request.required))
        self._progress: dict[Node, Progress] = {}  # of the beams and of those they come from
        self._may_prune = False  # a bank's best beam may be worse than all that has ended

    def wanted(self, beam: Beam) -> Sequence[int]:
        return self._progress_of(beam.node).next_ids()

    def take_known(self, event: TokenEvent) -> None:
        super().take_known(event)
        self._keep_progress()

    def choose(
        self, candidates: Iterable[Candidate], num_tokens: int, tell: Tell
    ) -> list[Candidate]:
        self._keep_progress()
        is_last = num_tokens == self.generation.max_new_tokens
        banks: dict[int, list[Candidate]] = {}
        num_complete = 0
        for candidate in candidates:
            progress = self._after(candidate)
            num_complete += progress.is_complete
            is_stop = candidate[2] in self.generation.stop_ids
            if is_stop or is_last:
                if progress.is_complete and num_complete <= self.num_beams:
                    self._end(candidate, self._reason(is_stop, is_last), num_tokens, tell)
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
        progress = self._progress_of(self.beams[place].node)
        return progress if token_id in self.generation.stop_ids else progress.after(token_id)

    def _keep_progress(self) -> None:
        nodes = [beam.node for beam in self.beams]
        self._progress = {node: self._progress_of(node) for node in nodes if node is not None}

    def _progress_of(self, node: Node | None) -> Progress:
        """That of its parent is known, or it has none."""
        if node is None:
            return self._start
        if node not in self._progress:
            parent = self._progress_of(node.parent)
            self._progress[node] = parent.after(node.event.token_id)
        return self._progress[node]
