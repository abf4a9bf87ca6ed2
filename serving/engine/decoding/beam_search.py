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

    going_on: list[Continuation]
    pool: BeamHypotheses


@dataclass(frozen=True, slots=True, eq=False)
class BeamGroup:
    """The live beams of one generation, and its pool of finished hypotheses.

    num_shared[a][b]: number of first positions in which the states of two beams' rows are equal.
    num_generated: tokens of every beam that were not given in advance.
    num_reported: tokens of the best hypothesis that have been reported.
    """

    generation: Generation
    beams: tuple[Beam, ...]
    pool: BeamHypotheses
    num_shared: tuple[tuple[int, ...], ...] = ((0,),)
    num_generated: int = 0
    num_reported: int = 0

    @property
    def num_beams(self) -> int:
        return self.pool.params.num_beams

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
        params = self.pool.params
        return (
            params.early_stopping is not True
            and params.coverage_penalty == 0
            and not self.generation.has_processors
        )

    def grown(self, parent: Beam, row: int, logprob: float, event: TokenEvent) -> Beam:
        """Return the beam that extends a parent by one token."""
        return Beam(row, logprob, Node(event, parent.node))

    def after_given(self, event: TokenEvent) -> "BeamGroup":
        """Append a token that was given in advance, while there is only one beam."""
        [beam] = self.beams
        grown = self.grown(beam, beam.row, 0.0, event)
        return replace(self, beams=(grown,), num_reported=self.num_reported + 1)

    def rename_row(self, source: int, target: int) -> "BeamGroup":
        """Return the group after row `source` was renamed to `target`."""
        beams = (replace(beam, row=target) if beam.row == source else beam for beam in self.beams)
        return replace(self, beams=tuple(beams))

    def expand(self, continuations: Iterable[Continuation], event_of: EventOf) -> Expansion:
        """Decide which beams continue and which end; none continue if the search is done.

        continuations: best first.
        """
        num_tokens = self.num_generated + 1
        is_last = num_tokens == self.generation.max_new_tokens
        going_on: list[Continuation] = []
        ended: list[FinishedHypothesis] = []
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

    def expansion(self, going_on: list[Continuation], ended: list[FinishedHypothesis]) -> Expansion:
        """Remove beams that cannot become better than the finished hypotheses; their rows become
        free.
        """
        pool, num_tokens = self.pool.joined_by(ended), self.num_generated + 1
        if not going_on or pool.is_final(going_on[0][0], num_tokens):
            return Expansion([], pool)
        if self.may_prune and len(pool.ended) == pool.capacity:
            going_on = [each for each in going_on if pool.can_improve(each[0], num_tokens)]
        return Expansion(going_on, pool)

    def reason(self, is_stop: bool, is_last: bool) -> FinishReason:
        """Return why a hypothesis ends. A stop token in the last position may be forced."""
        is_forced = is_last and self.generation.last_id is not None
        return FinishReason.STOP if is_stop and not is_forced else FinishReason.LENGTH

    def end(
        self, continuation: Continuation, reason: FinishReason, event_of: EventOf
    ) -> FinishedHypothesis:
        logprob, place, token_id = continuation
        beam, num_tokens = self.beams[place], self.num_generated + 1
        event = event_of(beam.row, token_id)
        if token_id in self.generation.stop_ids:
            return self.pool.rated(logprob, num_tokens, beam.node, reason, event)
        return self.pool.rated(logprob, num_tokens, Node(event, beam.node), reason)

    def given_up(self) -> BeamHypotheses:
        """End the best beam in its current state, when no beam can continue and none has ended."""
        best, reason = max(self.beams, key=lambda beam: beam.logprob), FinishReason.CONSTRAINT
        ended = self.pool.rated(best.logprob, self.num_generated, best.node, reason)
        return self.pool.joined_by([ended])

    def certain_tokens(self) -> list[TokenEvent]:
        """Return the unreported tokens that all hypotheses share that may still become the best
        one.
        """
        nodes = [beam.node for beam in self.beams] + [each.node for each in self.pool.ended]
        return tokens_until(common_node(nodes), self.num_reported)

    def last_tokens(self) -> list[TokenEvent]:
        """Return the unreported tokens of the best hypothesis."""
        return tokens_until(self.pool.ended[0].node, self.num_reported)

    def ending(self) -> Ending:
        """Return how the search ends, with the best hypotheses."""
        best = self.pool.ended[0]
        depth = best.node.depth if best.node else 0
        num_forced = len(self.generation.request.forced_ids)
        ended = self.pool.ended[: self.pool.params.num_hypotheses]
        return Ending(
            self.generation,
            best.reason,
            max(depth - num_forced, 0) + (best.end is not None),
            best.end.logprob if best.end else None,
            best.end.attention_pieces if best.end else (),
            tuple(each.as_hypothesis() for each in ended),
        )


def start_group(generation: Generation, row: int) -> BeamGroup:
    beam = generation.request.beam
    assert beam is not None
    return BeamGroup(generation, (Beam(row),), BeamHypotheses(beam, generation.max_new_tokens))


class BeamGroups(RowObserver):
    """Follows the rows. A group is removed when its generation ends, or when one of its rows is
    removed.
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


NO_TOKEN = float("-inf")


class BeamSearch:
    def __init__(self, groups: BeamGroups, batch: Batch) -> None:
        self._groups, self._batch = groups, batch

    def decide(self, decision: Decision, scores: Scores) -> None:
        """Add the results of all groups to `decision`, which already contains the other rows."""
        by_width: dict[int, list[BeamGroup]] = {}
        for group in self._groups.groups.values():
            if decision.is_forced[group.beams[0].row]:
                self._follow_given(group, decision, scores)
            else:
                by_width.setdefault(group.num_candidates, []).append(group)
        new_ids: list[int] = []
        for groups in by_width.values():
            for group, found in zip(groups, continuations_of(groups, scores), strict=True):
                self._advance(group, found, RowAssigner(decision, new_ids), scores)
        if new_ids:
            decision.token_ids = np.append(decision.token_ids, new_ids)
            decision.is_forced = np.append(decision.is_forced, np.zeros(len(new_ids), bool))
            decision.is_next = np.append(decision.is_next, np.ones(len(new_ids), bool))

    def _event(self, scores: Scores, row: int, token_id: int) -> TokenEvent:
        [logprob] = scores.of_tokens(np.array([row]), np.array([token_id])).tolist()
        return token_event(self._batch, row, token_id, logprob, scores)

    def _follow_given(self, group: BeamGroup, decision: Decision, scores: Scores) -> None:
        """Add a given token of the group's row to the beginning of all hypotheses. If there are
        only given tokens, they are the only hypothesis.
        """
        row = group.beams[0].row
        if (event := decision.token_outputs.get(row)) is not None:
            group = group.after_given(event)
        decision.searches.append(group)
        for ending in decision.endings:
            if ending.generation is group.generation:
                is_stop = ending.stop_logprob is not None
                token_id = int(decision.token_ids[row])
                end = self._event(scores, row, token_id) if is_stop else None
                only = group.pool.rated(0.0, 0, group.beams[0].node, ending.reason, end)
                ending.hypotheses = (only.as_hypothesis(),)

    def _advance(
        self, group: BeamGroup, found: list[Continuation], placing: "RowAssigner", scores: Scores
    ) -> None:
        event_of = partial(self._event, scores)
        expansion = group.expand(found, event_of)
        group = replace(group, pool=expansion.pool)
        if not expansion.going_on:
            _finish(group, placing.decision)
            return
        group = placing.place(group, expansion.going_on, event_of)
        if group.generation.request.streams:
            certain = group.certain_tokens()
            placing.decision.events += certain
            group = replace(group, num_reported=group.num_reported + len(certain))
        placing.decision.searches.append(group)


class RowAssigner:
    """Assigns rows to beams.

    new_ids: the tokens of rows that did not exist before the step.
    """

    def __init__(self, decision: Decision, new_ids: list[int]) -> None:
        self.decision, self._new_ids = decision, new_ids

    def place(self, group: BeamGroup, going_on: list[Continuation], event_of: EventOf) -> BeamGroup:
        """Give every continuing beam a row with the states of its parent's row."""
        going_parents = {place for _, place, _ in going_on}
        spare = [place for place in range(len(group.beams)) if place not in going_parents]
        has_stayed: set[int] = set()
        beams = []
        for logprob, place, token_id in going_on:
            parent = group.beams[place]
            event = event_of(parent.row, token_id)
            row = self._second_row(group, place, spare) if place in has_stayed else parent.row
            has_stayed.add(place)
            self._take(row, token_id)
            beams.append(group.grown(parent, row, logprob, event))
        self.decision.finished_rows += [group.beams[place].row for place in spare]
        return replace(
            group,
            beams=tuple(beams),
            num_shared=_num_shared(group, going_on),
            num_generated=group.num_generated + 1,
        )

    def _second_row(self, group: BeamGroup, parent: int, spare: list[int]) -> int:
        """Return a row for another beam of a parent whose own row is already taken."""
        source = group.beams[parent].row
        if not spare:
            target = len(self.decision.token_ids) + len(self._new_ids)
            self.decision.copies.append(RowCopy(source, target))
            return target
        place = max(spare, key=lambda each: group.num_shared[each][parent])
        spare.remove(place)
        target = group.beams[place].row
        self.decision.copies.append(RowCopy(source, target, group.num_shared[place][parent]))
        return target

    def _take(self, row: int, token_id: int) -> None:
        if row < len(self.decision.token_ids):
            self.decision.token_ids[row] = token_id
        else:
            self._new_ids.append(token_id)


def _finish(group: BeamGroup, decision: Decision) -> None:
    if not group.pool.ended:
        group = replace(group, pool=group.given_up())
    if group.generation.request.streams:
        decision.events += group.last_tokens()
    decision.endings.append(group.ending())
    decision.finished_rows += [beam.row for beam in group.beams]


def _num_shared(group: BeamGroup, going_on: list[Continuation]) -> tuple[tuple[int, ...], ...]:
    length, old = group.num_positions, group.num_shared
    parents = [place for _, place, _ in going_on]
    return tuple(tuple(length if a == b else old[a][b] for b in parents) for a in parents)


def continuations_of(groups: Sequence[BeamGroup], scores: Scores) -> Iterator[list[Continuation]]:
    """Return for each group the continuations that can matter, best first. All groups have the same
    `num_candidates`.
    """
    beams = [beam for group in groups for beam in group.beams]
    rows = np.array([beam.row for beam in beams])
    values, ids = best_tokens(scores, rows, groups[0].num_candidates)
    values += np.array([beam.logprob for beam in beams])[:, None]
    columns = zip(values.tolist(), ids.tolist(), strict=True)
    for group in groups:
        found = [
            (logprob, place, token_id)
            for place, column in enumerate(islice(columns, len(group.beams)))
            for logprob, token_id in zip(*column, strict=True)
            if logprob > NO_TOKEN
        ]
        found.sort(key=itemgetter(0), reverse=True)
        yield found
