"""Runs a bundle's graphs over the slot store: encode, prefill and step.

Everything a graph reads or writes is bound to it once per shape and kept, so that a decoding step
is one call. The runner knows rows and tensors; it does not know requests, and no architecture.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from math import prod

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.exchange.exchange import Exchange
from serving.engine.graphs.encoder import Encoder
from serving.engine.graphs.graph import Graph, Graphs, Run
from serving.engine.states.store import StateStore, max_span

NUM_STAGING_ROWS = 2  # for a prompt in progress, and for a more urgent one that comes meanwhile


class Runner:
    def __init__(
        self,
        manifest: Manifest,
        graphs: Graphs,
        batch: Batch,
        make_exchange: Callable[[int], Exchange],
        config: EngineConfig,
    ) -> None:
        """Make the slot store that the graphs run over.

        make_exchange: rows to what brings the step graph its inputs and its scores to the host.
        """
        step = manifest.graphs["step"]
        self._input_names = {spec.name for spec in step.inputs}
        ids = next(spec for spec in step.inputs if spec.name == "ids")
        self.can_prefill = ids.shape[1] != 1 and graphs.encode is None
        num_rows = batch.slots + (NUM_STAGING_ROWS if self.can_prefill else 0)
        self.staging_rows = range(batch.slots, num_rows)
        self.states = StateStore(manifest, num_rows, config.max_encode_tokens, graphs.memory)
        self._batch = batch
        self._encoder = Encoder(manifest, graphs.encode, self.states) if graphs.encode else None
        self._step = graphs.step
        attention = graphs.attention
        self._attention = AttentionStep(manifest, attention, batch.slots) if attention else None
        self.exchange = make_exchange(num_rows)
        self._fitted: tuple[int, ...] = ()
        self._bound: dict[Hashable, Run] = {}

    def encode(self, first_row: int, sources: Sequence[tuple[int, ...] | None], span: int) -> None:
        """Set the states of new rows from their sources, padded to `span`; zero them where there
        are none.
        """
        if self._encoder is not None:
            self._encoder.run([source or () for source in sources], span)
        self.states.admit(first_row, len(sources), span)

    def prefill(self, row: int, num_past: int, token_ids: Array) -> None:
        """Run tokens (i64) through the states of a staging row, which hold `num_past` already."""
        lengths = np.array([num_past, num_past + len(token_ids)], np.int32)
        inputs: dict[str, Array] = {
            "ids": token_ids[None],
            "past_lengths": lengths[:1],
            "total_lengths": lengths[1:],
        }
        self._bind(row, row + 1, inputs, self.exchange.outputs(slice(row, row + 1)))()
        self.states.settle(row)

    def launch(self, num_rows: int, wants_attention: bool = False) -> None:
        """Let the rows [0, num_rows) be scored for their next token.

        Attention changes no other score; it costs a graph of its own.
        """
        self._fit(num_rows)
        self.exchange.send(num_rows)
        attention = self._attention_output(num_rows) if wants_attention else None
        key = (num_rows, self.states.place, wants_attention)
        run = self._bound.get(key)
        if run is None:
            run = self._bound[key] = self._bind_decoding(num_rows, attention)
        run()
        self.states.flip()
        self.exchange.launched(num_rows, attention)
        self._batch.num_ahead += 1

    def _fit(self, num_rows: int) -> None:
        fitted = self.exchange.fit(num_rows)
        if fitted != self._fitted:
            self._fitted = fitted
            self._bound.clear()

    def abandon(self) -> None:
        """Forget the runs that were launched; their rows are gone."""
        self.exchange.abandon()
        self._batch.num_ahead = 0

    def _attention_output(self, num_rows: int) -> Array:
        assert self._attention is not None
        return self._attention.output(num_rows, self.states.span)

    def _bind_decoding(self, num_rows: int, attention: Array | None) -> Run:
        outputs = self.exchange.outputs(slice(num_rows))
        if attention is not None:
            outputs["attention"] = attention
        return self._bind(0, num_rows, self.exchange.inputs(num_rows), outputs)

    def _bind(
        self, first: int, last: int, inputs: dict[str, Array], outputs: dict[str, Array]
    ) -> Run:
        inputs = {name: array for name, array in inputs.items() if name in self._input_names}
        graph = self._step
        if self._attention is not None and "attention" in outputs:
            graph = self._attention.graph
        return graph.bind(
            inputs | self.states.inputs(first, last), outputs | self.states.outputs(first, last)
        )


class AttentionStep:
    """Holds the step graph that also gives attention, loaded when a row first wants it, and the
    memory it writes to: rows of [heads, span], as far apart as the span has it.
    """

    def __init__(self, manifest: Manifest, load: Callable[[], Graph], slots: int) -> None:
        self._load = load
        self._num_heads = manifest.num_attention_heads
        self._flat = np.zeros(slots * self._num_heads * max_span(manifest), np.float32)

    @cached_property
    def graph(self) -> Graph:
        return self._load()

    def output(self, num_rows: int, span: int) -> Array:
        """Return where attention is written: [rows, heads, span]."""
        shape = (num_rows, self._num_heads, span)
        return self._flat[: prod(shape)].reshape(shape)
