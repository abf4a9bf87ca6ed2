"""Beam search: all groups are expanded together, then their beams are assigned to rows.

A hypothesis is a row. A beam that continues stays in its row. A second continuation of the same
parent takes the row of a beam that ended, or a new row, and only the positions that the two rows do
not share are copied. Until its forced prefix is consumed, a search has a single row.

The state of a search between two steps (`BeamGroup`) is an immutable value; each step makes a new
one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter

import numpy as np

from serving.engine.decoding.beam_hypotheses import (
    BeamHypotheses,
    FinishedHypothesis,
    Node,
    best_tokens,
    common_node,
    tokens_until,
)
from serving.engine.decoding.scores import Scores
from serving.engine.decoding.token_outputs import token_event
from serving.engine.generation import Ending, Generation
from serving.engine.rows import Batch, Decision, RowCopy, RowObserver
from serving.requests.request import FinishReason, TokenEvent

# A continuation: log-probability of all its tokens, index of its beam in the group, token id.
Continuation = tuple[float, int, int]
NO_TOKEN = float("-inf")  # the log-probability of a token that must not be taken
EventOf = Callable[[int, int], TokenEvent]  # (row, token id): the event of the row's token


@dataclass(frozen=True, slots=True, eq=False)
class Beam:
    """A live hypothesis and its row.

    logprob: sum over its generated tokens, after processors.
    """

    row: int
    logprob: float = 0.0
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of expanding a group: the continuing beams, best first, and all finished
    hypotheses.
    """

    continuing: list[Continuation]
    hypotheses: BeamHypotheses


@dataclass(frozen=True, slots=True, eq=False)
class BeamGroup:
    """The live beams of one generation, and its finished hypotheses.

    num_shared[a][b]: number of first positions in which the states of two beams' rows are equal.
    num_generated: tokens of every beam that were not forced.
    num_reported: tokens of the best hypothesis that have been reported.
    """

    generation: Generation
    beams: tuple[Beam, ...]
    hypotheses: BeamHypotheses
    num_shared: tuple[tuple[int, ...], ...] = ((0,),)
    num_generated: int = 0
    num_reported: int = 0

    @property
    def num_beams(self) -> int:
        return self.hypotheses.params.num_beams

    @property
    def num_candidates(self) -> int:
        """Return the number of tokens per beam that can matter: one for each beam, and the stop
        tokens.
        """
        return self.num_beams + len(self.generation.stop_ids)

    @property
    def num_positions(self) -> int:
        """Return the number of positions in the states of a row after the step."""
        return len(self.generation.prefix_ids) + self.num_generated

    @property
    def may_prune(self) -> bool:
        """Return whether scores can only fall, and only scores rank hypotheses and end
        the search.
        """
        params = self.hypotheses.params
        return (
            params.early_stopping is not True
            and params.coverage_penalty == 0
            and not self.generation.has_processors
        )

    def append_forced(self, event: TokenEvent) -> "BeamGroup":
        """Append a forced token, while there is only one beam."""
        [beam] = self.beams
        beams = (Beam(beam.row, 0.0, Node(event, beam.node)),)
        return replace(self, beams=beams, num_reported=self.num_reported + 1)

    def rename_row(self, source: int, target: int) -> "BeamGroup":
        """Return the group after row `source` was renamed to `target`."""
        beams = (replace(beam, row=target) if beam.row == source else beam for beam in self.beams)
        return replace(self, beams=tuple(beams))

    def expand(self, continuations: Iterable[Continuation], event_of: EventOf) -> Expansion:
        """Decide which beams continue and which end; none continue if the search is done. Beams
        that cannot become better than the finished hypotheses do not continue.

        continuations: best first.
        """
        num_tokens = self.num_generated + 1
        is_last = num_tokens == self.generation.max_new_tokens
        is_forced_end = is_last and self.generation.last_id is not None
        continuing: list[Continuation] = []
        finished: list[FinishedHypothesis] = []
        for rank, continuation in enumerate(continuations):
            is_stop = continuation[2] in self.generation.stop_ids
            if is_stop or is_last:
                if rank < self.num_beams:
                    is_stopped = is_stop and not is_forced_end
                    reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH
                    finished.append(self.end(continuation, reason, event_of))
            elif len(continuing) < self.num_beams:
                continuing.append(continuation)
            if rank >= self.num_beams - 1 and (is_last or len(continuing) == self.num_beams):
                break
        hypotheses = self.hypotheses.add(finished)
        if not continuing or hypotheses.is_final(continuing[0][0], num_tokens):
            return Expansion([], hypotheses)
        if self.may_prune and len(hypotheses.finished) == hypotheses.capacity:
            continuing = [
                continuation
                for continuation in continuing
                if hypotheses.can_improve(continuation[0], num_tokens)
            ]
        return Expansion(continuing, hypotheses)

    def end(
        self, continuation: Continuation, reason: FinishReason, event_of: EventOf
    ) -> FinishedHypothesis:
        logprob, beam_index, token_id = continuation
        beam, num_tokens = self.beams[beam_index], self.num_generated + 1
        event = event_of(beam.row, token_id)
        if token_id in self.generation.stop_ids:
            return self.hypotheses.score_hypothesis(logprob, num_tokens, beam.node, reason, event)
        return self.hypotheses.score_hypothesis(logprob, num_tokens, Node(event, beam.node), reason)

    def give_up(self) -> BeamHypotheses:
        """End the best beam in its current state, when no beam can continue and none has ended."""
        best = max(self.beams, key=lambda beam: beam.logprob)
        finished = self.hypotheses.score_hypothesis(
            best.logprob, self.num_generated, best.node, FinishReason.CONSTRAINT
        )
        return self.hypotheses.add([finished])

    def certain_tokens(self) -> list[TokenEvent]:
        """Return the unreported tokens that all hypotheses share that may still become the best
        one.
        """
        nodes = [beam.node for beam in self.beams]
        nodes += [hypothesis.node for hypothesis in self.hypotheses.finished]
        return tokens_until(common_node(nodes), self.num_reported)

    def last_tokens(self) -> list[TokenEvent]:
        """Return the unreported tokens of the best hypothesis."""
        return tokens_until(self.hypotheses.finished[0].node, self.num_reported)

    def ending(self) -> Ending:
        """Return how the search ends, with the best hypotheses."""
        best = self.hypotheses.finished[0]
        depth = best.node.depth if best.node else 0
        num_forced = len(self.generation.request.forced_ids)
        reported = self.hypotheses.finished[: self.hypotheses.params.num_hypotheses]
        return Ending(
            self.generation,
            best.reason,
            max(depth - num_forced, 0) + (best.end is not None),
            best.end.logprob if best.end else None,
            best.end.attention_pieces if best.end else (),
            tuple(hypothesis.to_hypothesis() for hypothesis in reported),
        )


def start_group(generation: Generation, row: int) -> BeamGroup:
    beam = generation.request.beam
    assert beam is not None
    return BeamGroup(generation, (Beam(row),), BeamHypotheses(beam, generation.max_new_tokens))


class BeamGroups(RowObserver):
    """The groups of all generations that search. A group is removed when its generation ends, or
    when one of its rows is removed.
    """

    def __init__(self) -> None:
        self.groups: dict[Generation, BeamGroup] = {}

    def on_add(self, row: int, generation: Generation) -> None:
        if generation.request.beam is not None:
            self.groups[generation] = start_group(generation, row)

    def on_move(self, source: int, target: int) -> None:
        if self.groups and (group := self._group_of_row(source)) is not None:
            self.groups[group.generation] = group.rename_row(source, target)

    def on_remove(self, row: int) -> None:
        if self.groups and (group := self._group_of_row(row)) is not None:
            del self.groups[group.generation]

    def on_step(self, decision: Decision) -> None:
        for search in decision.searches:
            assert isinstance(search, BeamGroup)
            self.groups[search.generation] = search
        for ending in decision.endings:
            self.groups.pop(ending.generation, None)

    def _group_of_row(self, row: int) -> BeamGroup | None:
        for group in self.groups.values():
            if any(beam.row == row for beam in group.beams):
                return group
        return None


class BeamSearch:
    """Advances all groups by one step."""

    def __init__(self, groups: BeamGroups, batch: Batch) -> None:
        self._groups, self._batch = groups, batch

    def decide(self, decision: Decision, scores: Scores) -> None:
        """Add the results of all groups to `decision`, which already contains the other rows."""
        by_width: dict[int, list[BeamGroup]] = {}
        for group in self._groups.groups.values():
            if decision.is_forced[group.beams[0].row]:
                self._append_forced_token(group, decision, scores)
            else:
                by_width.setdefault(group.num_candidates, []).append(group)
        new_ids: list[int] = []
        for groups in by_width.values():
            continuations_of_groups = rank_continuations(groups, scores)
            for group, continuations in zip(groups, continuations_of_groups, strict=True):
                assigner = RowAssigner(decision, new_ids)
                self._advance(group, continuations, assigner, scores)
        if new_ids:
            decision.token_ids = np.append(decision.token_ids, new_ids)
            decision.is_forced = np.append(decision.is_forced, np.zeros(len(new_ids), bool))

    def _event(self, scores: Scores, row: int, token_id: int) -> TokenEvent:
        [logprob] = scores.reported_logprobs(np.array([row]), np.array([token_id])).tolist()
        return token_event(self._batch, row, token_id, logprob, scores)

    def _append_forced_token(self, group: BeamGroup, decision: Decision, scores: Scores) -> None:
        """Add a forced token of the group's row to the beginning of all hypotheses. If there are
        only forced tokens, they are the only hypothesis.
        """
        row = group.beams[0].row
        if (event := decision.token_outputs.get(row)) is not None:
            group = group.append_forced(event)
        decision.searches.append(group)
        for ending in decision.endings:
            if ending.generation is group.generation:
                is_stop = ending.stop_logprob is not None
                token_id = int(decision.token_ids[row])
                end = self._event(scores, row, token_id) if is_stop else None
                node, hypotheses = group.beams[0].node, group.hypotheses
                only = hypotheses.score_hypothesis(0.0, 0, node, ending.reason, end)
                ending.hypotheses = (only.to_hypothesis(),)

    def _advance(
        self,
        group: BeamGroup,
        continuations: list[Continuation],
        assigner: "RowAssigner",
        scores: Scores,
    ) -> None:
        event_of = partial(self._event, scores)
        expansion = group.expand(continuations, event_of)
        group = replace(group, hypotheses=expansion.hypotheses)
        if not expansion.continuing:
            _finish(group, assigner.decision)
            return
        group = assigner.assign_rows(group, expansion.continuing, event_of)
        if group.generation.request.streams:
            certain_tokens = group.certain_tokens()
            assigner.decision.events += certain_tokens
            group = replace(group, num_reported=group.num_reported + len(certain_tokens))
        assigner.decision.searches.append(group)


class RowAssigner:
    """Assigns rows to beams.

    new_ids: the tokens of rows that did not exist before the step.
    """

    def __init__(self, decision: Decision, new_ids: list[int]) -> None:
        self.decision, self._new_ids = decision, new_ids

    def assign_rows(
        self, group: BeamGroup, continuing: list[Continuation], event_of: EventOf
    ) -> BeamGroup:
        """Give every continuing beam a row with the states of its parent's row."""
        parents = {beam_index for _, beam_index, _ in continuing}
        ended_beams = [index for index in range(len(group.beams)) if index not in parents]
        assigned_rows: set[int] = set()
        beams = []
        for logprob, beam_index, token_id in continuing:
            parent = group.beams[beam_index]
            event = event_of(parent.row, token_id)
            row = parent.row
            if row in assigned_rows:
                row = self._copy_row(group, beam_index, ended_beams)
            assigned_rows.add(parent.row)
            if row < len(self.decision.token_ids):
                self.decision.token_ids[row] = token_id
            else:
                self._new_ids.append(token_id)
            beams.append(Beam(row, logprob, Node(event, parent.node)))
        self.decision.finished_rows += [group.beams[index].row for index in ended_beams]
        return replace(
            group,
            beams=tuple(beams),
            num_shared=_num_shared(group, continuing),
            num_generated=group.num_generated + 1,
        )

    def _copy_row(self, group: BeamGroup, parent: int, ended_beams: list[int]) -> int:
        """Return a row for another beam of a parent whose own row is already taken: that of the
        ended beam which shares most positions with it, or a new one.
        """
        source = group.beams[parent].row
        if not ended_beams:
            target = len(self.decision.token_ids) + len(self._new_ids)
            self.decision.copies.append(RowCopy(source, target))
            return target
        ended_beam = max(ended_beams, key=lambda index: group.num_shared[index][parent])
        ended_beams.remove(ended_beam)
        target = group.beams[ended_beam].row
        self.decision.copies.append(RowCopy(source, target, group.num_shared[ended_beam][parent]))
        return target


def _finish(group: BeamGroup, decision: Decision) -> None:
    if not group.hypotheses.finished:
        group = replace(group, hypotheses=group.give_up())
    if group.generation.request.streams:
        decision.events += group.last_tokens()
    decision.endings.append(group.ending())
    decision.finished_rows += [beam.row for beam in group.beams]


def _num_shared(group: BeamGroup, continuing: list[Continuation]) -> tuple[tuple[int, ...], ...]:
    """Return `BeamGroup.num_shared` of the continuing beams: two with one parent share all."""
    length, old = group.num_positions, group.num_shared
    parents = [beam_index for _, beam_index, _ in continuing]
    return tuple(tuple(length if a == b else old[a][b] for b in parents) for a in parents)


def rank_continuations(groups: Sequence[BeamGroup], scores: Scores) -> Iterator[list[Continuation]]:
    """Yield for each group the continuations that can matter, best first. All groups have the same
    `num_candidates`.
    """
    beams = [beam for group in groups for beam in group.beams]
    rows = np.array([beam.row for beam in beams])
    values, ids = best_tokens(scores, rows, groups[0].num_candidates)
    values += np.array([beam.logprob for beam in beams])[:, None]
    columns = zip(values.tolist(), ids.tolist(), strict=True)
    for group in groups:
        continuations = [
            (logprob, beam_index, token_id)
            for beam_index, column in enumerate(islice(columns, len(group.beams)))
            for logprob, token_id in zip(*column, strict=True)
            if logprob > NO_TOKEN
        ]
        continuations.sort(key=itemgetter(0), reverse=True)
        yield continuations
