"""One beam search: its live beams, its hypotheses that have ended, and how a step goes from beam to
beam. It decides; rows and states are moved by `beams.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from serving.engine.generation import Generation
from serving.engine.hypotheses import Node, Pool, common_node, tokens_until
from serving.parameters import NO_PROCESSORS
from serving.request import FinishedEvent, FinishReason, TokenEvent

# A continuation: log-probability of all its tokens, place of its beam in the group, token id.
Candidate = tuple[float, int, int]


@dataclass(slots=True, eq=False)
class Beam:
    """A live hypothesis and its row. logprob: sum over its generated tokens, after processors."""

    row: int
    logprob: float = 0.0
    node: Node | None = None


Tell = Callable[[int, int], TokenEvent]  # the event of a row's taking a token


class BeamGroup:
    """num_shared[a][b]: how many first positions of the states of two beams' rows are equal."""

    def __init__(self, generation: Generation, row: int) -> None:
        beam = generation.request.beam
        assert beam is not None
        self.generation = generation
        self.num_beams = beam.num_beams
        self.beams = [Beam(row)]
        self.num_shared = [[0]]
        self._num_hypotheses = beam.num_hypotheses
        self._pool = Pool(beam, generation.max_new_tokens)
        # Where scores only fall, and nothing but them ranks or ends a search.
        self._may_prune = (
            beam.early_stopping is not True
            and beam.coverage_penalty == 0
            and generation.request.processors == NO_PROCESSORS
        )
        self._num_told = 0

    @property
    def num_candidates(self) -> int:
        """How many tokens of one beam can matter: those that all beams go on with, and stops."""
        return self.num_beams + len(self.generation.stop_ids)

    def wanted(self, beam: Beam) -> Sequence[int]:
        """Tokens to consider for a beam even if they are none of its best."""
        return ()

    def take_known(self, event: TokenEvent) -> None:
        """A token that was given in advance, while there is but one beam."""
        [beam] = self.beams
        beam.node = Node(event, beam.node)

    def choose(
        self, candidates: Iterable[Candidate], num_tokens: int, tell: Tell
    ) -> list[Candidate]:
        """Those that go on, best first; none when the search is done. candidates: best first.

        num_tokens: how many each has generated with this one.
        """
        is_last = num_tokens == self.generation.max_new_tokens
        going_on: list[Candidate] = []
        for rank, candidate in enumerate(candidates):
            is_stop = candidate[2] in self.generation.stop_ids
            if is_stop or is_last:
                if rank < self.num_beams:
                    self._end(candidate, self._reason(is_stop, is_last), num_tokens, tell)
            elif len(going_on) < self.num_beams:
                going_on.append(candidate)
            if rank >= self.num_beams - 1 and (is_last or len(going_on) == self.num_beams):
                break
        self._pool.trim()
        return self._useful(going_on, num_tokens)

    def _useful(self, going_on: list[Candidate], num_tokens: int) -> list[Candidate]:
        """Without those that cannot end better than what has ended: their rows are free."""
        if not going_on or self._pool.is_final(going_on[0][0], num_tokens):
            return []
        if not (self._may_prune and self._pool.is_full):
            return going_on
        return [each for each in going_on if self._pool.can_improve(each[0], num_tokens)]

    def _reason(self, is_stop: bool, is_last: bool) -> FinishReason:
        """A stop token that comes last may be forced."""
        is_forced = is_last and self.generation.last_id is not None
        return FinishReason.STOP if is_stop and not is_forced else FinishReason.LENGTH

    def _end(self, candidate: Candidate, reason: FinishReason, num_tokens: int, tell: Tell) -> None:
        logprob, place, token_id = candidate
        beam = self.beams[place]
        event = tell(beam.row, token_id)
        if token_id in self.generation.stop_ids:
            self._pool.add(logprob, num_tokens, beam.node, reason, event)
        else:
            self._pool.add(logprob, num_tokens, Node(event, beam.node), reason)

    def end_known(self, reason: FinishReason, end: TokenEvent | None) -> None:
        """What was given in advance is all there is."""
        [beam] = self.beams
        self._pool.add(0.0, 0, beam.node, reason, end)

    def give_up(self, num_tokens: int) -> None:
        """No beam can go on: without a hypothesis that has ended, the best beam stays as it is."""
        if not self._pool.ended:
            best = max(self.beams, key=lambda beam: beam.logprob)
            self._pool.add(best.logprob, num_tokens, best.node, FinishReason.CONSTRAINT)

    def certain_tokens(self) -> list[TokenEvent]:
        """Tokens not told yet on which all hypotheses agree that may still be the best one."""
        nodes = [beam.node for beam in self.beams] + [each.node for each in self._pool.ended]
        return self._untold(common_node(nodes))

    def finish(self) -> tuple[list[TokenEvent], FinishedEvent]:
        """What is left to tell of the best hypothesis, and the end."""
        best = self._pool.ended[0]
        num_forced = len(self.generation.request.forced_ids)
        depth = best.node.depth if best.node else 0
        num_generated = max(depth - num_forced, 0) + (best.end is not None)
        ended = self._pool.ended[: self._num_hypotheses]
        event = self.generation.finished(
            best.reason,
            num_generated,
            best.end.logprob if best.end else None,
            tuple(each.as_hypothesis() for each in ended),
        )
        return self._untold(best.node), event

    def _untold(self, node: Node | None) -> list[TokenEvent]:
        tokens = tokens_until(node, self._num_told)
        self._num_told += len(tokens)
        return tokens
