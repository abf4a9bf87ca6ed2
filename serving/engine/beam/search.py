"""Takes a step of beam search: expands all groups at once, then finds their beams rows.

A hypothesis is a row. A beam that goes on stays in its row. A second one of the same parent goes
into the row of a beam that does not go on, or into a new one, and only those positions are copied
that the two rows do not have in common.

A search begins after the tokens given in advance; until then its one row is like any other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter

import numpy as np

from serving.engine.beam.group import BeamGroup, Continuation, EventOf
from serving.engine.beam.groups import BeamGroups
from serving.engine.beam.ranking import best_tokens
from serving.engine.decision import Decision, RowCopy
from serving.engine.generation import Generation
from serving.engine.scores import Scores
from serving.request import TokenEvent

NO_TOKEN = float("-inf")
# (generation, row, token id, log-probability, scores): reports a row's taking a token.
MakeEvent = Callable[[Generation, int, int, float, Scores], TokenEvent]


class BeamSearch:
    def __init__(self, groups: BeamGroups, make_event: MakeEvent) -> None:
        self._groups, self._make_event = groups, make_event

    def decide(self, decision: Decision, scores: Scores) -> None:
        """Add what becomes of all groups; `decision` has the other rows' part already."""
        by_width: dict[int, list[BeamGroup]] = {}
        for group in self._groups.groups:
            if decision.is_given[group.beams[0].row]:
                self._follow_given(group, decision, scores)
            else:
                by_width.setdefault(group.num_candidates, []).append(group)
        new_ids: list[int] = []
        for groups in by_width.values():
            for group, found in zip(groups, continuations_of(groups, scores), strict=True):
                self._advance(group, found, Placing(decision, new_ids), scores)
        if new_ids:
            decision.token_ids = np.append(decision.token_ids, new_ids)
            decision.is_given = np.append(decision.is_given, np.zeros(len(new_ids), bool))
            decision.is_next = np.append(decision.is_next, np.ones(len(new_ids), bool))

    def _event(self, scores: Scores, generation: Generation, row: int, token_id: int) -> TokenEvent:
        [logprob] = scores.of_tokens(np.array([row]), np.array([token_id])).tolist()
        return self._make_event(generation, row, token_id, logprob, scores)

    def _follow_given(self, group: BeamGroup, decision: Decision, scores: Scores) -> None:
        """Keep what the group's row reports as the beginning of all hypotheses; where that is all
        there is, it is the only one.
        """
        name, row = group.generation.request_id, group.beams[0].row
        for event in decision.events:
            if event.request_id == name:
                group = group.after_given(event)
        decision.searches.append(group)
        for generation, ending in decision.endings:
            if generation is group.generation:
                is_stop = ending.stop_logprob is not None
                token_id = int(decision.token_ids[row])
                end = self._event(scores, generation, row, token_id) if is_stop else None
                only = group.pool.rated(0.0, 0, group.beams[0].node, ending.reason, end)
                ending.hypotheses = (only.as_hypothesis(),)

    def _advance(
        self, group: BeamGroup, found: list[Continuation], placing: "Placing", scores: Scores
    ) -> None:
        event_of = partial(self._event, scores, group.generation)
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


class Placing:
    """Gives beams their rows.

    new_ids: the tokens of rows that there were not before the step.
    """

    def __init__(self, decision: Decision, new_ids: list[int]) -> None:
        self.decision, self._new_ids = decision, new_ids

    def place(self, group: BeamGroup, going_on: list[Continuation], event_of: EventOf) -> BeamGroup:
        """Give every beam that goes on a row which stands where its parent stands."""
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
        """Find a row for another beam of a parent whose own row has been taken."""
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
    decision.events += group.last_tokens()
    decision.endings.append((group.generation, group.finished()))
    decision.finished_rows += [beam.row for beam in group.beams]


def _num_shared(group: BeamGroup, going_on: list[Continuation]) -> tuple[tuple[int, ...], ...]:
    length, old = group.num_positions, group.num_shared
    parents = [place for _, place, _ in going_on]
    return tuple(tuple(length if a == b else old[a][b] for b in parents) for a in parents)


def continuations_of(groups: Sequence[BeamGroup], scores: Scores) -> Iterator[list[Continuation]]:
    """Find for each group the continuations that can matter, best first. The groups'
    `num_candidates` are one number.
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
