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
from serving.engine.graphs.encoder import Encoder
from serving.engine.graphs.graph import Graph, Graphs, Run
from serving.engine.scores import Scores, Scoring
from serving.engine.states.store import StateStore, max_span

NUM_STAGING_ROWS = 2  # for a prompt in progress, and for a more urgent one that comes meanwhile


class Runner:
    def __init__(
        self,
        manifest: Manifest,
        graphs: Graphs,
        batch: Batch,
        make_scoring: Callable[[Manifest, int], Scoring],
        config: EngineConfig,
    ) -> None:
        """Make the slot store that the graphs run over.

        make_scoring: (manifest, rows) to what the step graph scores.
        """
        step = manifest.graphs["step"]
        self._input_names = {spec.name for spec in step.inputs}
        self._output_names = {spec.name for spec in step.outputs}
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
        self.scoring = make_scoring(manifest, num_rows)
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
        self._bind(row, row + 1, inputs, self.scoring.scores(slice(row, row + 1)))()
        self.states.settle(row)

    def step(self, num_rows: int, wants_attention: bool = False) -> Scores:
        """Score the next token of the rows [0, num_rows). The next step overwrites the scores.

        Attention changes no other score; it costs a graph of its own.
        """
        self._fit(num_rows)
        scores = self.scoring.scores(slice(num_rows))
        if wants_attention:
            assert self._attention is not None
            scores.attention = self._attention.output(num_rows, self.states.span)
        key = (num_rows, self.states.place, wants_attention)
        run = self._bound.get(key)
        if run is None:
            run = self._bound[key] = self._bind(0, num_rows, self._decode_inputs(num_rows), scores)
        run()
        self.states.flip()
        return scores

    def _fit(self, num_rows: int) -> None:
        fitted = self.scoring.fit(num_rows)
        if fitted != self._fitted:
            self._fitted = fitted
            self._bound.clear()

    def _decode_inputs(self, num_rows: int) -> dict[str, Array]:
        batch = self._batch
        return {
            "ids": batch.ids[:num_rows],
            "past_lengths": batch.past_lengths[:num_rows],
            "total_lengths": batch.total_lengths[:num_rows],
            "source_lengths": batch.source_lengths[:num_rows],
            **self.scoring.inputs(num_rows),
        }

    def _bind(self, first: int, last: int, inputs: dict[str, Array], scores: Scores) -> Run:
        inputs = {name: array for name, array in inputs.items() if name in self._input_names}
        graph = self._step
        outputs = {
            "logp": scores.scored,
            "top_logp": scores.top_logp,
            "top_ids": scores.top_ids,
            "log_normaliser": scores.log_normaliser,
        }
        if self._attention is not None and scores.attention is not None:
            graph = self._attention.graph
            outputs["attention"] = scores.attention
        states = self.states.outputs(first, last).items()
        outputs |= {name: array for name, array in states if name in self._output_names}
        return graph.bind(inputs | self.states.inputs(first, last), outputs)


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
