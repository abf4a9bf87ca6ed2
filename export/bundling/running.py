"""Runs a bundle's graphs on a fixed set of rows, all in step: for verification, not for serving.

The engine schedules; this only binds. Teacher forcing needs every row's log-probabilities at every
position, which no request can ask of the engine.
"""

from collections.abc import Sequence

import numpy as np

from export.graph.writer import Array
from serving.bundle.manifest import (
    ATTENDED,
    BATCH,
    CANDIDATES,
    ENCODE_ATTENTION,
    LENGTH,
    LOGITS,
    LOGP,
    SOURCE,
    SOURCE_TYPES,
    STEP_ATTENTION,
    UNION,
    WANTS_LOGP,
    Manifest,
    Shape,
    StateKind,
)
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import Graph, Graphs, OrtGraph
from serving.engine.runtime.session import open_graphs, open_session
from serving.engine.states.memory import HostMemory
from serving.requests.request import Media

SPAN_MULTIPLE = 16
TEXTS_AT_ONCE = 16  # side by side

Ids = list[list[int]]
Sources = Sequence[list[int] | Media]


class GraphRows:
    """Runs the graphs of a bundle with the states of `sources` side by side; a language model has
    empty sources. With a shortlist, every token is on it.
    """

    def __init__(
        self,
        bundle: Bundle,
        sources: Sources,
        *,
        span: int = 0,
        threads: int = 1,
        wants_attention: bool = False,
        graphs: Graphs | None = None,
    ) -> None:
        """Encode the sources.

        span: their padded length; by default the least that fits. graphs: those of the bundle, if
        they are open already.
        """
        self._bundle, self._manifest = bundle, bundle.manifest
        graphs = graphs or open_graphs(bundle, EngineConfig(threads=threads))
        specs = bundle.manifest.graphs
        self._step_spec, self._encode_spec = specs["step"], specs.get("encode")
        graph, encode = graphs.step, graphs.encode
        if wants_attention and graphs.attention:
            self._step_spec, graph = specs[STEP_ATTENTION], graphs.attention()
        if wants_attention and graphs.encode_attention:
            self._encode_spec, encode = specs[ENCODE_ATTENTION], graphs.encode_attention()
        assert graph is not None, f"{bundle.manifest.name} has no step"
        self._graph = graph
        longest = max(map(len, sources))
        self._sizes = {
            BATCH: len(sources),
            SOURCE: longest if self._manifest.media_input else span or _round_up(longest),
            LENGTH: bundle.manifest.limits.max_target_tokens,
            ATTENDED: bundle.manifest.limits.max_target_tokens,
            CANDIDATES: bundle.manifest.vocab_size,
            UNION: bundle.manifest.vocab_size,
        }
        self._lengths = np.zeros(len(sources), np.int32)
        self._source_lengths = np.array([len(source) for source in sources], np.int32)
        self.states = {
            state.name: HostMemory().zeros(self._shape((BATCH, *state.shape)), state.dtype)
            for state in self._manifest.states
        }
        self.outputs: dict[str, Array] = {}  # of the last step, states aside
        self.source_outputs: dict[str, Array] = {}  # likewise of encoding
        if encode is not None:
            self._encode(encode, sources)

    def begin_anew(self) -> None:
        """Reset the states of a language model."""
        self._lengths = np.zeros_like(self._lengths)
        for state in self.states.values():
            state[...] = 0

    def read(self, ids: list[list[int]]) -> Array:
        """Append each row's new ids; log-probabilities after the last of them [batch, vocab]."""
        lengths = np.array([len(row) for row in ids], np.int32)
        past, total = self._lengths, self._lengths + lengths
        self._lengths = total
        inputs = {
            "ids": pad_rows(ids, int(lengths.max()), self._manifest.tokens.pad),
            "past_lengths": past,
            "total_lengths": total,
            "source_lengths": self._source_lengths,
        }
        if self._manifest.has_shortlist:
            inputs |= self._whole_vocabulary(len(ids))
        self._step(inputs)
        return self._logp

    def score(self, targets: list[list[int]]) -> Array:
        """Log-probabilities after every id of equally long targets [batch, length, vocab]."""
        columns = zip(*targets, strict=True)
        return np.stack([self.read([[i] for i in column]) for column in columns], axis=1)

    @property
    def _logp(self) -> Array:
        if LOGP in self.outputs:
            return self.outputs[LOGP]
        logits = self.outputs[LOGITS][:, : self._manifest.vocab_size]
        logp: Array = logits - self.outputs["log_normaliser"][:, None]
        return logp

    def _encode(self, encode: Graph, sources: Sources) -> None:
        inputs = self._read(sources) | {"source_lengths": self._source_lengths}
        assert self._encode_spec is not None
        self.source_outputs = {
            tensor.name: np.empty(self._shape(tensor.shape), tensor.dtype)
            for tensor in self._encode_spec.outputs
            if tensor.name not in self.states
        }
        written = {tensor.name for tensor in self._encode_spec.outputs} & self.states.keys()
        states = {name: self.states[name] for name in written}
        encode.bind(inputs, states | self.source_outputs)()

    def _read(self, sources: Sources) -> dict[str, Array]:
        if spec := self._manifest.media_input:
            return {spec.name: np.stack([encoder_input(self._manifest, s) for s in sources])}
        texts = [source for source in sources if not isinstance(source, Media)]
        return {"source_ids": pad_rows(texts, self._sizes[SOURCE], self._manifest.tokens.pad)}

    def _whole_vocabulary(self, num_rows: int) -> dict[str, Array]:
        every = np.arange(self._manifest.vocab_size)
        return {
            "candidates": every,
            "shortlist": np.tile(every, (num_rows, 1)),
            "shortlist_lengths": np.full(num_rows, len(every), np.int32),
        }

    def _step(self, inputs_by_name: dict[str, Array]) -> None:
        next_states = {
            f"{state.name}.next": array if state.kind is StateKind.APPEND else np.empty_like(array)
            for state in self._manifest.states
            if state.kind is not StateKind.CONSTANT
            for array in [self.states[state.name]]
        }
        self._sizes["tokens"] = inputs_by_name["ids"].shape[1]
        attended = np.array([self._sizes[ATTENDED]])
        available = self.states | inputs_by_name | {WANTS_LOGP: np.array(True), ATTENDED: attended}
        inputs = {tensor.name: available[tensor.name] for tensor in self._step_spec.inputs}
        self.outputs = {
            tensor.name: np.empty(self._shape(tensor.shape), tensor.dtype)
            for tensor in self._step_spec.outputs
            if tensor.name not in next_states
        }
        self._graph.bind(inputs, next_states | self.outputs)()
        self.states.update(
            (name.removesuffix(".next"), array_of_state)
            for name, array_of_state in next_states.items()
        )

    def _shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self._sizes[axis] if isinstance(axis, str) else axis for axis in shape)


def encoder_input(manifest: Manifest, source: list[int] | Media) -> list[int] | Array:
    """Return what the encoder reads: ids, or the values of a picture or of sound in the shape of
    the graph's input.
    """
    spec = manifest.media_input
    if spec is None or not isinstance(source, Media):
        assert isinstance(source, list)
        return source
    values = np.frombuffer(source.content, spec.dtype)
    return values.reshape([int(axis) for axis in spec.shape[1:]])


def _round_up(length: int) -> int:
    return -(-length // SPAN_MULTIPLE) * SPAN_MULTIPLE


def pad_rows(rows: list[list[int]], length: int, pad: int) -> Array:
    """Return rows of ids, padded to one length: int64 [rows, length]."""
    array = np.full((len(rows), length), pad, np.int64)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


class TextGraph:
    """One graph of a bundle, opened to run on texts."""

    def __init__(self, bundle: Bundle, name: str = "encode", threads: int = 1) -> None:
        self._manifest, self._spec = bundle.manifest, bundle.manifest.graphs[name]
        path, config = bundle.graph_path(name), EngineConfig(threads=threads)
        self._graph = OrtGraph(open_session(path, config))

    def run(self, rows: Ids, types: Ids, span: int = 0) -> dict[str, Array]:
        """Encode texts: all outputs, by name. types: each token's segment. span: what texts are
        padded to; by default the longest.
        """
        span = span or max(map(len, rows))
        inputs_by_name = {
            "source_ids": pad_rows(rows, span, self._manifest.tokens.pad),
            "source_lengths": np.array([len(ids) for ids in rows], np.int32),
            SOURCE_TYPES: pad_rows(types, span, 0),
        }
        sizes = {BATCH: len(rows), SOURCE: span}
        shapes = {
            tensor.name: [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.shape]
            for tensor in self._spec.outputs
        }
        outputs = {
            tensor.name: np.empty(shapes[tensor.name], tensor.dtype)
            for tensor in self._spec.outputs
        }
        inputs = {tensor.name: inputs_by_name[tensor.name] for tensor in self._spec.inputs}
        self._graph.bind(inputs, outputs)()
        return outputs
