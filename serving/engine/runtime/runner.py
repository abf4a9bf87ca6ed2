"""Run a bundle's graphs over the state store: encode, prefill and step.

All inputs and outputs of a graph are bound once per shape, so that a decoding step is one call. The
runner works with rows and tensors, and is independent of requests and architectures.
"""

import gc
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from serving.bundle.manifest import (
    LOGP,
    PIXELS,
    SOURCE,
    SOURCE_TYPES,
    WANTS_LOGP,
    AttentionKind,
    Manifest,
    TensorSpec,
)
from serving.engine.arrays import Array
from serving.engine.attention_query import (
    AttentionOutputs,
    AttentionSpan,
    AttentionStep,
    tokens_at_once,
)
from serving.engine.config import EngineConfig
from serving.engine.rows import Batch
from serving.engine.runtime.exchange import Exchange
from serving.engine.runtime.graph import Graph, Graphs, Run
from serving.engine.states.store import StateStore, all_rows, max_source_tokens, max_span
from serving.errors import DeviceError, OutOfMemory
from serving.requests.request import Picture, Source

logger = logging.getLogger(__name__)

Arrays = dict[str, Array]  # by the names of a graph's tensors

NUM_STAGING_ROWS = 2  # for a prompt in progress, and for a more urgent one that arrives meanwhile


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """The outputs of a run that some row needs, in addition to its likeliest tokens.

    attention: kinds of attention weights.
    num_attended: target positions of the longest row that needs decoder attention.
    """

    attention: frozenset[AttentionKind] = frozenset()
    num_attended: int = 0
    logp: bool = True


LOGP_ONLY = StepOutputs()


class Runner:
    def __init__(
        self,
        manifest: Manifest,
        graphs: Graphs,
        batch: Batch,
        make_exchange: Callable[[int], Exchange],
        config: EngineConfig,
    ) -> None:
        """Allocate the state store.

        make_exchange: takes the number of rows and returns the exchange of inputs and scores.
        """
        step = manifest.graphs["step"]
        self._input_names = {spec.name for spec in step.inputs}
        self._output_names = {spec.name for spec in step.outputs}
        ids = next(spec for spec in step.inputs if spec.name == "ids")
        self.can_prefill = ids.shape[1] != 1 and graphs.encode is None
        num_rows = batch.slots + (NUM_STAGING_ROWS if self.can_prefill else 0)
        self.staging_rows = range(batch.slots, num_rows)
        self._grid, self._recording = graphs.grid, graphs.recording
        self.states = StateStore(
            manifest, num_rows, config.max_encode_tokens, graphs.memory, self._grid
        )
        self._batch = batch
        scratch = self.states.scratch
        self._encoder = Encoder(manifest, graphs, scratch) if graphs.encode else None
        self._step, self._attention = graphs.step, None
        if graphs.attention:
            num_at_once = tokens_at_once(manifest, config.prefill_chunk)
            self._attention = AttentionStep(manifest, graphs.attention, batch.slots, num_at_once)
        self.exchange = make_exchange(num_rows)
        self._switch = {is_on: np.array(is_on) for is_on in (False, True)}
        self._capacity = manifest.limits.max_target_tokens
        self._prompt_ids = np.zeros((1, config.prefill_chunk), np.int64)
        self._prompt_lengths = np.zeros(2, np.int32)
        self._fitted: tuple[int, ...] = ()
        self._bound: dict[Hashable, Run] = {}

    def encode(self, first_row: int, sources: Sequence[Source], span: int) -> None:
        """Set the states of new rows from their sources, padded to `span`; zero them for rows
        without a source.
        """
        if self._encoder is not None:
            self._encoder.run(sources, span)
        self.states.admit(first_row, len(sources), span)

    def encode_with_attention(self, row: int, source: Source, span: int) -> Array:
        """Encode the source of one new row; return its attention weights, f32 [heads,
        span, span].
        """
        assert self._encoder is not None
        weights = self._encoder.run_with_attention(source, span)
        self.states.admit(row, 1, span)
        return weights

    def prefill(self, row: int, num_past: int, token_ids: Array) -> None:
        """Run tokens (i64, at most a chunk) over the states of a staging row that contain
        `num_past` tokens.
        """
        self._step.bind(*self._prompt_arrays(row, num_past, token_ids))()
        self.states.settle(row)

    def prefill_with_attention(self, row: int, num_past: int, token_ids: Array) -> Array:
        """Prefill; return the attention weights of the tokens, f32 [heads, tokens, positions]."""
        assert self._attention is not None
        arrays, count = self._prompt_arrays(row, num_past, token_ids), len(token_ids)
        run, weights = self._attention.bind_prompt(*arrays, count, num_past + count)
        run()
        self.states.settle(row)
        return weights

    def _prompt_arrays(self, row: int, num_past: int, token_ids: Array) -> tuple[Arrays, Arrays]:
        ids, lengths = self._prompt_ids[:, : len(token_ids)], self._prompt_lengths
        ids[0], lengths[:] = token_ids, (num_past, num_past + len(token_ids))
        inputs: Arrays = {
            "ids": ids,
            "past_lengths": lengths[:1],
            "total_lengths": lengths[1:],
        }
        outputs = self.exchange.outputs(slice(row, row + 1))
        return self._arrays(row, row + 1, inputs, outputs)

    def launch(self, num_rows: int, needed: StepOutputs = LOGP_ONLY) -> None:
        """Score the next token of the rows [0, num_rows).

        Attention does not change the scores, but needs another graph. Without log-probabilities
        only the likeliest tokens are valid.
        """
        if WANTS_LOGP not in self._input_names:
            needed = replace(needed, logp=True)
        rows = self._grid.rows(num_rows, self._batch.slots)
        if rows > num_rows:
            self._batch.pad(rows)
        self._fit(rows)
        self.exchange.send(rows)
        span = AttentionSpan(self.states.span, needed.num_attended)
        if self._attention and needed.attention:
            span = replace(span, target=self._attention.attended(needed.num_attended))
            needed = replace(needed, num_attended=span.target)
        attention = self._attention_outputs(needed, rows, span)
        key = (rows, self.states.place, needed)
        run = self._bound.get(key)
        if run is None:
            run = self._bound[key] = self._bind(rows, attention, span, needed.logp)
        run()
        self.states.flip()
        self.exchange.launched(rows, attention)
        self._batch.num_ahead += 1

    def abandon(self) -> None:
        """Discard the runs that were launched; their rows were removed."""
        self.exchange.abandon()
        self._batch.num_ahead = 0

    def warm_up(self) -> int:
        """Run the largest shapes, so that missing memory is found now, and record the step in all
        of its shapes if possible. Returns the number of recordings.

        No row may be in use, and `launch` must be called on the same thread, because recordings
        belong to a thread.
        """
        if self._encoder is not None:
            self._encoder.warm_up()
        if self.can_prefill:
            self.prefill(self.staging_rows[0], 0, self._prompt_ids[0, : self._capacity].copy())
        self._try()
        self._bound.clear()
        try:
            self._record()
        except (DeviceError, OutOfMemory) as error:
            logger.warning("%d shapes were recorded, then: %s", len(self._bound), error)
        num_shapes = len(self._bound)
        self._try()
        return num_shapes

    def _try(self) -> None:
        self.launch(self._batch.slots)
        self.abandon()

    def _record(self) -> None:
        if self._recording is None:
            return
        with _no_garbage_collection():
            for _ in self.states.walk():
                for rows in reversed(all_rows(self._grid, self._batch.slots)):
                    self._batch.pad(rows)
                    run = self._recording.record(*self._decode_arrays(rows))
                    self._bound[rows, self.states.place, LOGP_ONLY] = run

    def _fit(self, num_rows: int) -> None:
        fitted = self.exchange.fit(num_rows)
        if fitted != self._fitted:
            self._fitted = fitted
            self._bound.clear()

    def _attention_outputs(
        self, needed: StepOutputs, rows: int, span: AttentionSpan
    ) -> AttentionOutputs:
        if not needed.attention:
            return {}
        assert self._attention is not None
        return self._attention.outputs(needed.attention, rows, span)

    def _bind(
        self, rows: int, attention: AttentionOutputs, span: AttentionSpan, wants_logp: bool
    ) -> Run:
        inputs, outputs = self._decode_arrays(rows, wants_logp)
        if not attention:
            return self._step.bind(inputs, outputs)
        assert self._attention is not None
        return self._attention.bind(inputs, outputs, attention, span)

    def _decode_arrays(self, rows: int, wants_logp: bool = True) -> tuple[Arrays, Arrays]:
        outputs = self.exchange.outputs(slice(rows))
        inputs = self.exchange.inputs(rows)
        inputs[WANTS_LOGP] = self._switch[wants_logp]
        if not wants_logp:
            outputs.pop(LOGP, None)  # it is not computed
        return self._arrays(0, rows, inputs, outputs)

    def _arrays(
        self, first: int, last: int, inputs: Arrays, outputs: Arrays
    ) -> tuple[Arrays, Arrays]:
        """Return the inputs and outputs of the step graph for the rows [first, last)."""
        inputs = {name: array for name, array in inputs.items() if name in self._input_names}
        states = self.states.outputs(first, last).items()
        outputs |= {name: array for name, array in states if name in self._output_names}
        return inputs | self.states.inputs(first, last), outputs


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage before, and none within: CUDA forbids to free memory while it records, and a
    session of ONNX Runtime that is collected then ends the process.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


Scratch = Callable[[int, int], dict[str, Array]]


class Encoder:
    """Binds the encode graph once per shape; the graph with attention is bound for each run.

    scratch: returns the output arrays for a number of rows and a span, by name.
    """

    def __init__(self, manifest: Manifest, graphs: Graphs, scratch: Scratch) -> None:
        assert graphs.encode is not None
        self._graph, self._scratch = graphs.encode, scratch
        self._load = graphs.encode_attention
        self._output = _source_attention(manifest)
        inputs = manifest.graphs["encode"].inputs
        self._has_types = any(tensor.name == SOURCE_TYPES for tensor in inputs)
        self._pad, self._picture = manifest.tokens.pad, manifest.picture
        self._longest = max_source_tokens(manifest) if self._picture else max_span(manifest)
        self._bound: dict[tuple[int, int], EncodeBinding | PictureBinding] = {}

    def run(
        self,
        sources: Sequence[Source],
        span: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        """Encode sources, padded to `span`. pair_starts: positions of the second text of
        each pair.
        """
        key = (len(sources), span)
        if key not in self._bound:
            self._bound[key] = self._bind(self._graph, *key, {})
        bound = self._bound[key]
        bound.fill(sources, self._pad, pair_starts)
        bound.run()

    def run_with_attention(self, source: Source, span: int, pair_start: int | None = None) -> Array:
        """Encode one source; return its attention weights, f32 [heads, span, span], or those of its
        hops, f32 [1, hops, span].
        """
        assert self._output is not None
        shape = (span if axis == SOURCE else int(axis) for axis in self._output.shape[1:])
        weights = np.zeros((1, *shape), np.float32)
        bound = self._bind(self._with_attention, 1, span, {self._output.name: weights})
        bound.fill([source], self._pad, [pair_start])
        bound.run()
        attention: Array = weights[0]
        return attention

    @cached_property
    def _with_attention(self) -> Graph:
        assert self._load is not None
        return self._load()

    def warm_up(self) -> None:
        """Encode a source of maximum length, which needs most memory."""
        source: Source = (self._pad,)
        if self._picture is not None:
            source = Picture(bytes(3 * self._picture.size**2), self._longest)
        self.run([source], self._longest)

    def _bind(
        self, graph: Graph, num_rows: int, span: int, outputs: dict[str, Array]
    ) -> "EncodeBinding | PictureBinding":
        outputs = self._scratch(num_rows, span) | outputs
        if self._picture is not None:
            return PictureBinding(graph, num_rows, span, self._picture.size, outputs)
        ids = np.zeros((num_rows, span), np.int64)
        lengths = np.zeros(num_rows, np.int32)
        inputs: dict[str, Array] = {"source_ids": ids, "source_lengths": lengths}
        types = np.zeros((num_rows, span), np.int64) if self._has_types else None
        if types is not None:
            inputs[SOURCE_TYPES] = types
        run = graph.bind(inputs, outputs)
        return EncodeBinding(ids, lengths, types, run)


def _source_attention(manifest: Manifest) -> TensorSpec | None:
    """Return the output with the attention of source tokens, or of hops."""
    found = map(manifest.attention_output, (AttentionKind.ENCODER, AttentionKind.HOPS))
    return next((spec for spec in found if spec is not None), None)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    types: Array | None
    run: Run

    def fill(
        self,
        sources: Sequence[Source],
        pad: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        self.ids[...] = pad
        for row, source in enumerate(sources):
            assert not isinstance(source, Picture)
            self.ids[row, : len(source)] = source
            self.lengths[row] = len(source)
        if self.types is None:
            return
        self.types[...] = 0
        for row, start in enumerate(pair_starts or ()):
            if start is not None:
                self.types[row, start : len(sources[row])] = 1


class PictureBinding:
    """The encode graph bound to the pixels of some pictures, all of one length."""

    def __init__(
        self, graph: Graph, num_rows: int, length: int, size: int, outputs: Arrays
    ) -> None:
        self._pixels = np.zeros((num_rows, size, size, 3), np.uint8)
        lengths = np.full(num_rows, length, np.int32)
        self.run = graph.bind({PIXELS: self._pixels, "source_lengths": lengths}, outputs)

    def fill(self, sources: Sequence[Source], *_: object) -> None:
        for row, source in enumerate(sources):
            assert isinstance(source, Picture)
            levels = np.frombuffer(source.pixels, np.uint8)
            self._pixels[row] = levels.reshape(self._pixels.shape[1:])
