"""Describes one beam search between two steps, as a value: its live beams and what has ended.

A step makes the next value of it; rows and states are for `Rows.apply` to change.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from serving.engine.beam.hypotheses import Ended, Node, Pool, common_node, tokens_until
from serving.engine.generation import Generation
from serving.parameters import NO_PROCESSORS
from serving.request import FinishedEvent, FinishReason, TokenEvent

# A continuation: log-probability of all its tokens, place of its beam in the group, token id.
Continuation = tuple[float, int, int]
EventOf = Callable[[int, int], TokenEvent]  # (row, token id): reports a row's taking a token


@dataclass(frozen=True, slots=True, eq=False)
class Beam:
    """Holds a live hypothesis and its row.

    logprob: sum over its generated tokens, after processors.
    """

    row: int
    logprob: float = 0.0
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """Says what becomes of a group's beams: who goes on, best first, and all that has ended."""

    going_on: list[Continuation]
    pool: Pool


@dataclass(frozen=True, slots=True, eq=False)
class BeamGroup:
    """Holds the live beams of one generation, and the pool of hypotheses that have ended.

    num_shared[a][b]: how many first positions of the states of two beams' rows are equal.
    num_generated: tokens of every beam that were not given in advance.
    num_reported: tokens of the best hypothesis that have been reported.
    """

    generation: Generation
    beams: tuple[Beam, ...]
    pool: Pool
    num_shared: tuple[tuple[int, ...], ...] = ((0,),)
    num_generated: int = 0
    num_reported: int = 0

    @property
    def num_beams(self) -> int:
        return self.pool.params.num_beams

    @property
    def num_candidates(self) -> int:
        """Count the tokens of one beam that can matter: those all beams go on with, and stops."""
        return self.num_beams + len(self.generation.stop_ids)

    @property
    def num_positions(self) -> int:
        """Count the positions that the states of a row hold after the step."""
        return len(self.generation.given_ids) + self.num_generated

    @property
    def may_prune(self) -> bool:
        """Tell whether scores only fall, and nothing but them ranks or ends the search."""
        params = self.pool.params
        return (
            params.early_stopping is not True
            and params.coverage_penalty == 0
            and self.generation.request.processors == NO_PROCESSORS
        )

    def grown(self, parent: Beam, row: int, logprob: float, event: TokenEvent) -> Beam:
        """Make the beam that goes on from a parent by one token."""
        return Beam(row, logprob, Node(event, parent.node))

    def after_given(self, event: TokenEvent) -> "BeamGroup":
        """Take in a token that was given in advance and reported, while there is but one beam."""
        [beam] = self.beams
        grown = self.grown(beam, beam.row, 0.0, event)
        return replace(self, beams=(grown,), num_reported=self.num_reported + 1)

    def moved(self, source: int, target: int) -> "BeamGroup":
        """Follow a row that is now another one."""
        beams = (replace(beam, row=target) if beam.row == source else beam for beam in self.beams)
        return replace(self, beams=tuple(beams))

    def expand(self, continuations: Iterable[Continuation], event_of: EventOf) -> Expansion:
        """Say which beams go on and which end; none goes on when the search is done.

        continuations: best first.
        """
        num_tokens = self.num_generated + 1
        is_last = num_tokens == self.generation.max_new_tokens
        going_on: list[Continuation] = []
        ended: list[Ended] = []
        for rank, each in enumerate(continuations):
            is_stop = each[2] in self.generation.stop_ids
            if is_stop or is_last:
                if rank < self.num_beams:
                    ended.append(self.end(each, self.reason(is_stop, is_last), event_of))
            elif len(going_on) < self.num_beams:
                going_on.append(each)
            if rank >= self.num_beams - 1 and (is_last or len(going_on) == self.num_beams):
                break
        return self.expansion(going_on, ended)

    def expansion(self, going_on: list[Continuation], ended: list[Ended]) -> Expansion:
        """Leave out those that cannot end better than what has ended: their rows are free."""
        pool, num_tokens = self.pool.joined_by(ended), self.num_generated + 1
        if not going_on or pool.is_final(going_on[0][0], num_tokens):
            return Expansion([], pool)
        if self.may_prune and pool.is_full:
            going_on = [each for each in going_on if pool.can_improve(each[0], num_tokens)]
        return Expansion(going_on, pool)

    def reason(self, is_stop: bool, is_last: bool) -> FinishReason:
        """Say why a hypothesis ends: a stop token that comes last may be forced."""
        is_forced = is_last and self.generation.last_id is not None
        return FinishReason.STOP if is_stop and not is_forced else FinishReason.LENGTH

    def end(self, continuation: Continuation, reason: FinishReason, event_of: EventOf) -> Ended:
        logprob, place, token_id = continuation
        beam, num_tokens = self.beams[place], self.num_generated + 1
        event = event_of(beam.row, token_id)
        if token_id in self.generation.stop_ids:
            return self.pool.rated(logprob, num_tokens, beam.node, reason, event)
        return self.pool.rated(logprob, num_tokens, Node(event, beam.node), reason)

    def given_up(self) -> Pool:
        """End the best beam as it is, when no beam can go on and none has ended."""
        best, reason = max(self.beams, key=lambda beam: beam.logprob), FinishReason.CONSTRAINT
        ended = self.pool.rated(best.logprob, self.num_generated, best.node, reason)
        return self.pool.joined_by([ended])

    def certain_tokens(self) -> list[TokenEvent]:
        """List tokens not reported yet on which all hypotheses agree that may still be best."""
        nodes = [beam.node for beam in self.beams] + [each.node for each in self.pool.ended]
        return tokens_until(common_node(nodes), self.num_reported)

    def last_tokens(self) -> list[TokenEvent]:
        """List what is left to report of the best hypothesis."""
        return tokens_until(self.pool.ended[0].node, self.num_reported)

    def finished(self) -> FinishedEvent:
        """End the search with the best that has ended."""
        best = self.pool.ended[0]
        depth = best.node.depth if best.node else 0
        num_given = len(self.generation.request.forced_ids)
        ended = self.pool.ended[: self.pool.params.num_hypotheses]
        return self.generation.finished(
            best.reason,
            max(depth - num_given, 0) + (best.end is not None),
            best.end.logprob if best.end else None,
            tuple(each.as_hypothesis() for each in ended),
            best.end.looked if best.end else (),
        )


def start_group(generation: Generation, row: int) -> BeamGroup:
    beam = generation.request.beam
    assert beam is not None
    return BeamGroup(generation, (Beam(row),), Pool(beam, generation.max_new_tokens))
