"""A step of beam search: all groups are expanded at once, then their beams find their rows.

A hypothesis is a row. A beam that goes on stays in its row. A second one of the same parent goes
into the row of a beam that does not go on, or into a new one, and only those positions are copied
that the two rows do not have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter

import numpy as np

from serving.engine.batch import Batch
from serving.engine.beam.beams import Beams
from serving.engine.beam.candidates import best_tokens, values_of
from serving.engine.beam.group import Beam, BeamGroup, Candidate, Tell
from serving.engine.beam.hypotheses import Node
from serving.engine.rows import Rows
from serving.engine.scores import Choices, Scores
from serving.engine.states.memory import Array
from serving.engine.token_events import Decoded, Reporter
from serving.request import FinishReason, TokenEvent

NO_TOKEN = float("-inf")


@dataclass(slots=True)
class Step:
    """One step in the making. token_ids: i64 [slots], of rows of beams as they are decided."""

    scores: Scores
    token_ids: Array
    decoded: Decoded


class BeamSearch:
    def __init__(self, batch: Batch, rows: Rows, beams: Beams, reporter: Reporter) -> None:
        self._batch, self._rows, self._beams, self._reporter = batch, rows, beams, reporter

    def choose(self, scores: Scores, choices: Choices, decoded: Decoded) -> Array:
        """The next tokens of all rows, new ones included: i64 [rows]. Adds to `decoded`."""
        step = Step(scores, np.zeros(self._batch.slots, np.int64), decoded)
        step.token_ids[: scores.num_rows] = choices.token_ids
        free: dict[int, list[BeamGroup]] = {}
        num_known = self._batch.num_known.tolist()
        for group in self._beams.groups:
            if num_known[group.beams[0].row]:
                self._take_known(group, step)
            else:
                free.setdefault(group.num_candidates, []).append(group)
        for alike in free.values():
            for group, candidates in zip(alike, candidates_of(alike, scores), strict=True):
                self._advance(group, candidates, step)
        return step.token_ids[: self._batch.num_rows]

    def _tell(self, scores: Scores, row: int, token_id: int) -> TokenEvent:
        [logprob] = scores.of_tokens(np.array([row]), np.array([token_id])).tolist()
        return self._reporter.token(row, token_id, logprob, scores)

    def _take_known(self, group: BeamGroup, step: Step) -> None:
        row, generation = group.beams[0].row, group.generation
        if self._batch.total_lengths[row] < len(generation.prompt_ids):
            return
        token_id = int(step.token_ids[row])
        event = self._tell(step.scores, row, token_id)
        is_all = self._batch.num_known[row] + generation.max_new_tokens == 1
        is_stop = is_all and token_id in generation.stop_ids
        if not is_stop:
            group.take_known(event)
        if is_all:
            reason = FinishReason.STOP if is_stop else FinishReason.LENGTH
            group.end_known(reason, event if is_stop else None)
            self._finish(group, step)
        elif generation.request.streams:
            step.decoded.tokens += group.certain_tokens()

    def _advance(self, group: BeamGroup, candidates: list[Candidate], step: Step) -> None:
        num_tokens = int(self._batch.num_generated[group.beams[0].row]) + 1
        tell = partial(self._tell, step.scores)
        going_on = group.choose(candidates, num_tokens, tell)
        if not going_on:
            group.give_up(num_tokens - 1)
            self._finish(group, step)
            return
        self._place(group, going_on, step, tell)
        if group.generation.request.streams:
            step.decoded.tokens += group.certain_tokens()

    def _finish(self, group: BeamGroup, step: Step) -> None:
        tokens, event = group.finish()
        step.decoded.tokens += tokens
        step.decoded.ends.append((group.generation, event))
        step.decoded.left_rows += [beam.row for beam in group.beams]
        self._beams.leave(group.generation)

    def _place(self, group: BeamGroup, going_on: list[Candidate], step: Step, tell: Tell) -> None:
        """Give every beam that goes on a row which stands where its parent stands."""
        parents = group.beams
        going_parents = {place for _, place, _ in going_on}
        spare = [place for place in range(len(parents)) if place not in going_parents]
        has_stayed: set[int] = set()
        beams = []
        for logprob, place, token_id in going_on:
            parent = parents[place]
            row = parent.row
            event = tell(row, token_id)
            if place in has_stayed:
                row = self._second_row(group, place, spare)
                step.decoded.num_copies += 1
            has_stayed.add(place)
            step.token_ids[row] = token_id
            beams.append(Beam(row, logprob, Node(event, parent.node)))
        step.decoded.left_rows += [parents[place].row for place in spare]
        group.num_shared = self._num_shared(group, going_on)
        self._beams.place(group, beams)

    def _second_row(self, group: BeamGroup, parent: int, spare: list[int]) -> int:
        """A row that stands where a parent stands, whose own row has been taken."""
        source = group.beams[parent].row
        if not spare:
            return self._rows.fork(source)
        place = max(spare, key=lambda each: group.num_shared[each][parent])
        spare.remove(place)
        target = group.beams[place].row
        self._rows.overwrite(source, target, group.num_shared[place][parent])
        return target

    def _num_shared(self, group: BeamGroup, going_on: list[Candidate]) -> list[list[int]]:
        length, old = int(self._batch.total_lengths[group.beams[0].row]), group.num_shared
        parents = [place for _, place, _ in going_on]
        return [[length if a == b else old[a][b] for b in parents] for a in parents]


def candidates_of(groups: Sequence[BeamGroup], scores: Scores) -> Iterator[list[Candidate]]:
    """For each group the continuations that can matter, best first. The groups' `num_candidates`
    are one number.
    """
    beams = [beam for group in groups for beam in group.beams]
    rows = np.array([beam.row for beam in beams])
    values, ids = best_tokens(scores, rows, groups[0].num_candidates)
    values += np.array([beam.logprob for beam in beams])[:, None]
    columns = zip(values.tolist(), ids.tolist(), strict=True)
    for group in groups:
        candidates = [
            (logprob, place, token_id)
            for place, column in enumerate(islice(columns, len(group.beams)))
            for logprob, token_id in zip(*column, strict=True)
            if logprob > NO_TOKEN
        ]
        if group.generation.request.required:
            candidates += _for_terms(group, candidates, scores)
        candidates.sort(key=itemgetter(0), reverse=True)
        yield candidates


def _for_terms(
    group: BeamGroup, candidates: list[Candidate], scores: Scores
) -> Iterator[Candidate]:
    """Those that bring a required term further, though they are none of the best."""
    there = {(place, token_id) for _, place, token_id in candidates}
    for place, beam in enumerate(group.beams):
        ids = [each for each in group.wanted(beam) if (place, each) not in there]
        for token_id, value in zip(ids, values_of(scores, beam.row, ids), strict=True):
            if value > NO_TOKEN:
                yield beam.logprob + value, place, token_id
