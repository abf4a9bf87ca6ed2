"""Attention queries of a request, and the step graph that outputs attention weights.

Graphs output the heads of all layers on one axis; here heads are numbers along that axis.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    STEP_ATTENTION,
    AttentionKind,
    AttentionShape,
    Manifest,
)
from serving.engine.arrays import Array
from serving.engine.runtime.graph import Graph, Run
from serving.engine.states.store import max_span
from serving.errors import RequestError
from serving.requests.request import AttentionQuery, AttentionWeights

# Maximum number of weights of one request, and of one row in one run: 64 MiB.
MAX_ATTENTION_WEIGHTS = 2**24
ATTENDED_STEP = 64  # target positions are rounded up to it, so that few shapes are bound


@dataclass(frozen=True, slots=True)
class HeadSelection:
    """The heads of one query.

    heads: indices on the axis of all layers' heads.
    shape: number of layers and of heads per layer in the selection.
    """

    kind: AttentionKind
    heads: tuple[int, ...]
    shape: tuple[int, int]
    is_mean: bool

    @property
    def num_reported(self) -> int:
        return 1 if self.is_mean else len(self.heads)

    def select(self, weights: Array) -> AttentionWeights:
        """Copy the selected heads from weights, f32 [all heads, rows, columns], to [layers, heads,
        rows, columns].
        """
        chosen = weights[list(self.heads)]
        if self.is_mean:
            mean: AttentionWeights = chosen.mean(axis=0, dtype=np.float32)[None, None]
            return mean
        return chosen.reshape(*self.shape, *weights.shape[1:])


def resolve_queries(
    queries: tuple[AttentionQuery, ...], manifest: Manifest
) -> tuple[HeadSelection, ...]:
    """Return the heads of each query. Raises RequestError for heads that the bundle does
    not have.
    """
    return tuple(_resolve_query(query, manifest) for query in queries)


def _resolve_query(query: AttentionQuery, manifest: Manifest) -> HeadSelection:
    shapes = manifest.attention_shapes
    if query.kind not in shapes:
        available = f"it has {', '.join(shapes)}" if shapes else "it has none"
        message = f"model {manifest.name} has no such attention: {available}"
        raise RequestError("attention_queries", query.kind, message)
    kind = AttentionKind(query.kind)
    shape = shapes[kind]
    layers = _check_indices(query.kind, "layer", query.layers, shape.num_layers)
    heads = _check_indices(query.kind, "head", query.heads, shape.num_heads)
    indices = tuple(layer * shape.num_heads + head for layer in layers for head in heads)
    return HeadSelection(kind, indices, (len(layers), len(heads)), query.is_mean)


def select_alignment_heads(heads: tuple[int, ...], manifest: Manifest) -> HeadSelection:
    """Return these heads of cross-attention, or the heads that the bundle recommends if there are
    none. Raises RequestError for heads that the bundle does not have.
    """
    num_heads = manifest.num_attention_heads
    if not num_heads:
        message = "this model has no attention over its source"
        raise RequestError("attention_heads", heads, message)
    for head in heads:
        if not 0 <= head < num_heads:
            message = f"no such head: there are {num_heads}"
            raise RequestError("attention_heads", head, message)
    heads = heads or manifest.alignment_heads
    return HeadSelection(AttentionKind.CROSS, heads, (1, len(heads)), is_mean=True)


def _check_indices(kind: str, name: str, indices: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the layers or heads of a query, all of them if it names none. Raises RequestError."""
    for index in indices:
        if not 0 <= index < count:
            message = f"no such {name} of {kind} attention: they go from 0 to {count - 1}"
            raise RequestError("attention_queries", index, message)
    if len(set(indices)) < len(indices):  # a few thousand, repeated, would be millions of matrices
        message = f"names a {name} of {kind} attention more than once; name each once"
        raise RequestError("attention_queries", indices, message)
    return indices or tuple(range(count))


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a request: source tokens, maximum target tokens, and tokens that one
    run reads.
    """

    num_source: int
    num_target: int
    num_at_once: int

    def check(
        self,
        selections: tuple[HeadSelection, ...],
        shapes: dict[AttentionKind, AttentionShape],
    ) -> None:
        """Raise RequestError if a request needs more weights than the limit per request, or the
        limit per run.
        """
        kinds = [selection.kind for selection in selections]
        at_once = {kind: self._num_in_one_run(kind, shapes[kind]) for kind in kinds}
        most = max(self._num_reported(selections), *at_once.values(), 0)
        if most > MAX_ATTENTION_WEIGHTS:
            message = (
                f"for up to {max(self.num_source, self.num_target)} tokens these are {most} "
                f"numbers, more than {MAX_ATTENTION_WEIGHTS}: allow for fewer tokens, or for fewer "
                "heads"
            )
            raise RequestError("attention_queries", ", ".join(at_once), message)

    def _num_reported(self, selections: tuple[HeadSelection, ...]) -> int:
        return sum(
            selection.num_reported * prod(self._size(selection.kind)) for selection in selections
        )

    def _num_in_one_run(self, kind: AttentionKind, shape: AttentionShape) -> int:
        """Return the number of positions of one run: all of a source, or the target tokens that one
        run reads.
        """
        rows, columns = self._size(kind)
        is_source = kind is AttentionKind.ENCODER
        return shape.num_maps * columns * (rows if is_source else min(self.num_at_once, rows))

    def _size(self, kind: AttentionKind) -> tuple[int, int]:
        columns = self.num_target if kind is AttentionKind.DECODER else self.num_source
        rows = self.num_source if kind is AttentionKind.ENCODER else self.num_target
        return rows, columns


def tokens_at_once(manifest: Manifest, prefill_chunk: int) -> int:
    """Return the number of prompt tokens that the step graph reads in one run."""
    if "encode" in manifest.graphs:
        return 1
    ids = next(spec for spec in manifest.graphs["step"].inputs if spec.name == "ids")
    return 1 if ids.shape[1] == 1 else prefill_chunk


AttentionOutputs = dict[AttentionKind, Array]  # f32 [rows, heads, positions]


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """The numbers of source and target positions that attention weights are computed for."""

    source: int
    target: int


class AttentionStep:
    """The step graph that outputs attention weights. It is loaded when a row first needs them. The
    span gives the distance between the rows of its outputs.
    """

    def __init__(
        self, manifest: Manifest, load: Callable[[], Graph], slots: int, num_at_once: int
    ) -> None:
        """num_at_once: number of prompt tokens in one run."""
        self._load = load
        inputs = manifest.graphs[STEP_ATTENTION].inputs
        self._has_attended = any(spec.name == ATTENDED for spec in inputs)
        self._capacity = manifest.limits.max_target_tokens
        self._num_maps: dict[AttentionKind, int] = {
            kind: shape.num_maps
            for kind, shape in manifest.attention_shapes.items()
            if kind is not AttentionKind.ENCODER
        }
        longest = {AttentionKind.CROSS: max_span(manifest)}
        if AttentionKind.DECODER in self._num_maps:
            # No request may ask for more; where contexts are long it is far less than they are.
            most = MAX_ATTENTION_WEIGHTS // (self._num_maps[AttentionKind.DECODER] * num_at_once)
            longest[AttentionKind.DECODER] = min(self._capacity, most + ATTENDED_STEP)
        self._flat: AttentionOutputs = {
            kind: np.zeros(slots * count * longest[kind], np.float32)
            for kind, count in self._num_maps.items()
        }

    @cached_property
    def graph(self) -> Graph:
        return self._load()

    def round_up_attended(self, num_tokens: int) -> int:
        """Return the number of target positions, rounded up to a size that the graph is
        bound for.
        """
        whole = -(-num_tokens // ATTENDED_STEP) * ATTENDED_STEP
        return min(whole, self._capacity)

    def outputs(
        self, kinds: Iterable[AttentionKind], num_rows: int, span: AttentionSpan
    ) -> AttentionOutputs:
        """Return the output arrays for one token of each row: [rows, heads, positions]."""
        return {kind: self._output(kind, num_rows, span) for kind in kinds}

    def bind(
        self,
        inputs: dict[str, Array],
        outputs: dict[str, Array],
        attention: AttentionOutputs,
        span: AttentionSpan,
    ) -> Run:
        """Bind the graph to the inputs and outputs of the step graph and to its attention
        outputs.
        """
        return self.graph.bind(
            inputs | self._attended_input(span), outputs | _name_outputs(attention)
        )

    def bind_prompt(
        self, inputs: dict[str, Array], outputs: dict[str, Array], num_tokens: int, num_total: int
    ) -> tuple[Run, Array]:
        """Bind the graph to prompt tokens; return the run and its attention weights, f32 [heads,
        tokens, positions].
        """
        span = AttentionSpan(0, self.round_up_attended(num_total))
        shape = (self._num_maps[AttentionKind.DECODER], num_tokens, span.target)
        attention = np.zeros(shape, np.float32)
        name = ATTENTION_OUTPUTS[AttentionKind.DECODER][1]
        run = self.graph.bind(
            inputs | self._attended_input(span), outputs | {name: attention[None]}
        )
        return run, attention

    def _attended_input(self, span: AttentionSpan) -> dict[str, Array]:
        return {ATTENDED: np.array([span.target])} if self._has_attended else {}

    def _output(self, kind: AttentionKind, num_rows: int, span: AttentionSpan) -> Array:
        length = span.target if kind is AttentionKind.DECODER else span.source
        shape = (num_rows, self._num_maps[kind], length)
        return self._flat[kind][: prod(shape)].reshape(shape)


def _name_outputs(attention: AttentionOutputs) -> dict[str, Array]:
    """Return the arrays under the graph's output names. Decoder attention has an additional token
    axis in the graph.
    """
    return {
        ATTENTION_OUTPUTS[kind][1]: (
            weights[:, :, None] if kind is AttentionKind.DECODER else weights
        )
        for kind, weights in attention.items()
    }
