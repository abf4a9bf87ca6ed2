"""Holds the step graph that also gives attention, and the memory it writes to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    STEP_ATTENTION,
    AttentionKind,
    Manifest,
)
from serving.engine.attention.sight import MAX_NUMBERS
from serving.engine.graphs.graph import Graph, Run
from serving.engine.states.store import max_span

LEAST_ATTENDED = 64  # target positions; more come by as many, so that few shapes are bound

Told = dict[AttentionKind, Array]  # f32 [rows, heads, positions]


@dataclass(frozen=True, slots=True)
class Span:
    """Says of how many positions attention is told: of the source, and of the target."""

    source: int
    target: int


class AttentionStep:
    """Loads the graph when a row first wants it. Rows of its outputs are as far apart as the span
    has it.
    """

    def __init__(
        self, manifest: Manifest, load: Callable[[], Graph], slots: int, num_at_once: int
    ) -> None:
        """num_at_once: tokens of a prompt in one run."""
        self._load = load
        inputs = manifest.graphs[STEP_ATTENTION].inputs
        self._has_attended = any(spec.name == ATTENDED for spec in inputs)
        self._capacity = manifest.limits.max_target_tokens
        self._num_maps: dict[AttentionKind, int] = {
            kind: shape.num_maps
            for kind, shape in manifest.told_attention.items()
            if kind is not AttentionKind.ENCODER
        }
        longest = {AttentionKind.CROSS: max_span(manifest)}
        if AttentionKind.DECODER in self._num_maps:
            # Beyond this no request may look; where contexts are long it is far less than they are.
            most = MAX_NUMBERS // (self._num_maps[AttentionKind.DECODER] * num_at_once)
            longest[AttentionKind.DECODER] = min(self._capacity, most + LEAST_ATTENDED)
        self._flat: Told = {
            kind: np.zeros(slots * count * longest[kind], np.float32)
            for kind, count in self._num_maps.items()
        }

    @cached_property
    def graph(self) -> Graph:
        return self._load()

    def attended(self, num_tokens: int) -> int:
        """Round target positions up to those that attention is told of: 0 where none is asked."""
        whole = -(-num_tokens // LEAST_ATTENDED) * LEAST_ATTENDED
        return min(whole, self._capacity)

    def outputs(self, kinds: Iterable[AttentionKind], num_rows: int, span: Span) -> Told:
        """Return where attention of one token of each row is written: [rows, heads, positions]."""
        return {kind: self._output(kind, num_rows, span) for kind in kinds}

    def bind(
        self, inputs: dict[str, Array], outputs: dict[str, Array], told: Told, span: Span
    ) -> Run:
        """Bind the graph to what the step graph reads and writes, and to what it tells."""
        return self.graph.bind(inputs | self._asked(span), outputs | _named(told))

    def bind_prompt(
        self, inputs: dict[str, Array], outputs: dict[str, Array], num_tokens: int, num_total: int
    ) -> tuple[Run, Array]:
        """Bind it to tokens of a prompt; return also where it tells what they look at, f32 [heads,
        tokens, positions].
        """
        span = Span(0, self.attended(num_total))
        shape = (self._num_maps[AttentionKind.DECODER], num_tokens, span.target)
        told = np.zeros(shape, np.float32)
        name = ATTENTION_OUTPUTS[AttentionKind.DECODER][1]
        run = self.graph.bind(inputs | self._asked(span), outputs | {name: told[None]})
        return run, told

    def _asked(self, span: Span) -> dict[str, Array]:
        return {ATTENDED: np.array([span.target])} if self._has_attended else {}

    def _output(self, kind: AttentionKind, num_rows: int, span: Span) -> Array:
        length = span.target if kind is AttentionKind.DECODER else span.source
        shape = (num_rows, self._num_maps[kind], length)
        return self._flat[kind][: prod(shape)].reshape(shape)


def _named(told: Told) -> dict[str, Array]:
    """Name arrays as the graph does; of target positions it tells token by token."""
    return {
        ATTENTION_OUTPUTS[kind][1]: each[:, :, None] if kind is AttentionKind.DECODER else each
        for kind, each in told.items()
    }
