"""Which attention weights a request asks for, and the step graph that outputs them.

The manifest maps layers and heads to numbers along an axis; here they are those numbers.
"""

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
    AttentionShape,
    Manifest,
)
from serving.engine.runtime.graph import Graph, Run
from serving.engine.states.store import max_span
from serving.errors import RequestError
from serving.request import Attention, Look

# Numbers that one request may have, and that one run may compute for a row: 64 MiB.
MAX_NUMBERS = 2**24


@dataclass(frozen=True, slots=True)
class Sight:
    """Picks what one look wants of the heads of all layers.

    maps: their places on that axis. shape: of these, layers and heads.
    """

    kind: AttentionKind
    maps: tuple[int, ...]
    shape: tuple[int, int]
    is_mean: bool

    @property
    def num_told(self) -> int:
        return 1 if self.is_mean else len(self.maps)

    def of(self, weights: Array) -> Attention:
        """Take of weights f32 [all heads, rows, columns] a copy: [layers, heads, rows, columns]."""
        chosen = weights[list(self.maps)]
        if self.is_mean:
            mean: Attention = chosen.mean(axis=0, dtype=np.float32)[None, None]
            return mean
        return chosen.reshape(*self.shape, *weights.shape[1:])


def sights_of(looks: tuple[Look, ...], manifest: Manifest) -> tuple[Sight, ...]:
    """Find what a request's looks mean for a bundle. Raises RequestError for what it has not."""
    return tuple(_sight(look, manifest) for look in looks)


def _sight(look: Look, manifest: Manifest) -> Sight:
    told = manifest.told_attention
    if look.kind not in told:
        known = f"it has {', '.join(told)}" if told else "it has none"
        message = f"model {manifest.name} tells of no such attention: {known}"
        raise RequestError("looks", look.kind, message)
    kind = AttentionKind(look.kind)
    shape = told[kind]
    layers = _numbers(look.kind, "layer", look.layers, shape.num_layers)
    heads = _numbers(look.kind, "head", look.heads, shape.num_heads)
    maps = tuple(layer * shape.num_heads + head for layer in layers for head in heads)
    return Sight(kind, maps, (len(layers), len(heads)), look.is_mean)


def _numbers(kind: str, name: str, asked: tuple[int, ...], count: int) -> tuple[int, ...]:
    for number in asked:
        if not 0 <= number < count:
            message = f"no such {name} of {kind} attention: they go from 0 to {count - 1}"
            raise RequestError("looks", number, message)
    if len(set(asked)) < len(asked):  # a few thousand twice over would be millions of maps
        message = f"names a {name} of {kind} attention more than once; name each once"
        raise RequestError("looks", asked, message)
    return asked or tuple(range(count))


@dataclass(frozen=True, slots=True)
class Extent:
    """Says how much text a request has: tokens of its source, the most that its target may get, and
    how many of these are read at once.
    """

    num_source: int
    num_target: int
    num_at_once: int

    def check(self, sights: tuple[Sight, ...], shapes: dict[AttentionKind, AttentionShape]) -> None:
        """Raises RequestError where a request looks at more than is kept for one, or computed for
        one at a time.
        """
        at_once = {each.kind: self._at_once(each.kind, shapes[each.kind]) for each in sights}
        most = max(self._told(sights), *at_once.values(), 0)
        if most > MAX_NUMBERS:
            message = (
                f"for up to {max(self.num_source, self.num_target)} tokens these are {most} "
                f"numbers, more than {MAX_NUMBERS}: allow for fewer tokens, or for fewer heads"
            )
            raise RequestError("looks", ", ".join(at_once), message)

    def _told(self, sights: tuple[Sight, ...]) -> int:
        return sum(each.num_told * prod(self._size(each.kind)) for each in sights)

    def _at_once(self, kind: AttentionKind, shape: AttentionShape) -> int:
        """Count what a run computes: a source whole, a target by as many tokens as are read."""
        rows, columns = self._size(kind)
        is_source = kind is AttentionKind.ENCODER
        return shape.num_maps * columns * (rows if is_source else min(self.num_at_once, rows))

    def _size(self, kind: AttentionKind) -> tuple[int, int]:
        columns = self.num_target if kind is AttentionKind.DECODER else self.num_source
        rows = self.num_source if kind is AttentionKind.ENCODER else self.num_target
        return rows, columns


def tokens_at_once(manifest: Manifest, prefill_chunk: int) -> int:
    """Count the tokens of a prompt that the step graph reads in one run."""
    if "encode" in manifest.graphs:
        return 1
    ids = next(spec for spec in manifest.graphs["step"].inputs if spec.name == "ids")
    return 1 if ids.shape[1] == 1 else prefill_chunk


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
