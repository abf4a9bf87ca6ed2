"""Brings sources in: encoded in groups of like lengths, straight into new rows.

Equal sources of one group are encoded once, and the states of those seen lately are kept.
"""

import time

from serving.bundle.manifest import AttentionKind
from serving.engine.admission.intake import Intake, Surroundings
from serving.engine.admission.spans import encode_groups, encode_span
from serving.engine.attention.looking import note_source
from serving.engine.generation import Generation
from serving.engine.measures import StepStats
from serving.engine.states.kind import RowPart
from serving.parameters import TokenIds


class SourceIntake(Intake):
    """Also takes prompts without a source that the graph reads token by token. Whoever leaves the
    queue has a row within the same step.
    """

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._max_encode_tokens = around.config.max_encode_tokens

    @property
    def is_due(self) -> bool:
        first = self._seat.first
        has_room = first is not None and first.request.num_rows <= self._batch.num_free
        return has_room and not self._awaits_rows()

    def admit(self, step_stats: StepStats) -> None:
        if not self.is_due:
            return
        taken = self._seat.take_sources(self._batch.num_free)
        looking = [each for each in taken if each.looks_at(AttentionKind.ENCODER)]
        others = [each for each in taken if each not in looking]
        for group in (
            *encode_groups(others, self._max_encode_tokens),
            *([each] for each in looking),
        ):
            self._admit(group, step_stats)

    def _awaits_rows(self) -> bool:
        """Tell whether to wait for more free rows. While all rows are wanted, sources come in a
        quarter of the slots at a time: encoding one alone takes far longer than its share of a
        batch.
        """
        enough = min(self._seat.num_waiting, self._batch.slots // 4)
        return self._batch.num_rows > 0 and self._batch.num_free < enough

    def _admit(self, group: list[Generation], step_stats: StepStats) -> None:
        """Set the states of the rows behind the batch. Where that fails, the group's requests have
        failed.
        """
        started = time.perf_counter()
        step_stats.joined(group, started)
        first = self._batch.num_rows
        span = encode_span(group[-1])
        in_use = int(self._batch.source_lengths[:first].max(initial=0))
        try:
            self._states.fit_span(max(in_use, span), first)
            ordered = self._fill(first, group, span, step_stats)
        except Exception as error:
            self._fail(group, error)
            return
        if span:
            step_stats.add_seconds("encode", started)
        for generation in ordered:
            self._rows.add(generation, num_prefilled=0)

    def _fill(
        self, first: int, group: list[Generation], span: int, step_stats: StepStats
    ) -> list[Generation]:
        """Fill new rows; return the group in the order of its rows, the newly encoded first."""
        found = {source: self._cache.get(source) for source in map(_source, group)}
        parts = {source: kept for source, kept in found.items() if kept is not None}
        new: list[Generation] = []
        others: list[Generation] = []
        for generation in group:
            is_known = _source(generation) in parts
            if generation.looks_at(AttentionKind.ENCODER):
                is_known = False  # what is kept does not say what it looked at
            (others if is_known else new).append(generation)
            parts.setdefault(_source(generation), [])
        if new:
            self._encode(first, new, span)
        for row, source in enumerate(map(_source, new), first):
            parts[source] = self._states.parts(row, _encoded(source))
        for row, source in enumerate(map(_source, others), first + len(new)):
            self._states.restore(row, _encoded(source), parts[source])
        for source in map(_source, new):
            self._cache.put(source, parts[source])
        step_stats.encoded(new, others, span)
        return new + others

    def _encode(self, first: int, new: list[Generation], span: int) -> None:
        """Encode sources; who looks at its own comes alone."""
        sources = [_source(each) for each in new]
        if not new[0].looks_at(AttentionKind.ENCODER):
            self._runner.encode(first, sources, span)
            return
        note_source(new[0], self._runner.encode_telling(first, sources[0], span))


def _source(generation: Generation) -> TokenIds:
    return generation.request.source_ids or ()


def _encoded(source: TokenIds) -> RowPart:
    """Select what the encoder gives a row."""
    return RowPart(slice(0), len(source))
