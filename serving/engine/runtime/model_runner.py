"""Run a bundle's graphs over the state store: encode, prefill and step.

All inputs and outputs of a graph are bound once per shape, so that a decoding step is one call. The
runner works with rows and tensors, and is independent of requests and architectures. On a CPU the
step graph reads the batch's own arrays, and the scores are views of what it wrote;
`serving.engine.cuda.device_runner` copies both.
"""

import gc
import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from serving.bundle.manifest import LOGITS, LOGP, WANTS_LOGP, AttentionKind, Manifest
from serving.engine.arrays import Array
from serving.engine.attention_query import (
    AttentionOutputs,
    AttentionSpan,
    AttentionStep,
    tokens_at_once,
)
from serving.engine.config import EngineConfig
from serving.engine.decoding.scores import Scores, allocate_window
from serving.engine.decoding.shortlist import Shortlists, ShortlistScores
from serving.engine.rows import Batch, RowObserver
from serving.engine.runtime.encoder import Encoder
from serving.engine.runtime.graph import Graphs, Run
from serving.engine.states.store import StateStore, all_rows
from serving.errors import DeviceError, OutOfMemory
from serving.requests.request import Source

logger = logging.getLogger(__name__)

Arrays = dict[str, Array]  # by the names of a graph's tensors

# For a prompt in progress, and for a more urgent one that arrives meanwhile.
NUM_STAGING_ROWS = 2


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """The outputs of a run that some row needs, in addition to its likeliest tokens.

    attention: kinds of attention weights.
    num_attended: target positions of the longest row that needs decoder attention.
    """

    attention: frozenset[AttentionKind] = frozenset()
    num_attended: int = 0
    logp: bool = True


LOGP_ONLY, TOP_ONLY = StepOutputs(), StepOutputs(logp=False)


class ModelRunner:
    """Runs the graphs of a bundle. A step is a `launch`, later a `receive` of its scores.

    row_observers: objects that keep data for each row.
    has_launched: whether a run was launched whose scores have not been received.
    can_launch_ahead: whether another run can be launched before the host has read the last one's
        scores: a device has chosen every row's next token. On a CPU a run has ended when it was
        launched.
    can_prefill: whether the step graph reads several tokens of a row in one run.
    staging_rows: rows of the state store behind the slots, for prompts in progress of models
        without a source.
    """

    def __init__(
        self, manifest: Manifest, graphs: Graphs, batch: Batch, config: EngineConfig
    ) -> None:
        """Allocate the state store."""
        step = manifest.graphs["step"]
        self._input_names = {spec.name for spec in step.inputs}
        self._output_names = {spec.name for spec in step.outputs}
        ids = next(spec for spec in step.inputs if spec.name == "ids")
        self.can_prefill = ids.shape[1] != 1 and graphs.can_prefill
        has_staging_rows = self.can_prefill and graphs.encode is None
        self._num_rows = batch.slots + (NUM_STAGING_ROWS if has_staging_rows else 0)
        self.staging_rows = range(batch.slots, self._num_rows)
        self._manifest, self._batch, self._step = manifest, batch, graphs.step
        self._grid, self._recording = graphs.grid, graphs.recording
        self.states = StateStore(
            manifest, self._num_rows, config.max_encode_tokens, graphs.memory, self._grid
        )
        outputs = self.states.encoder_outputs
        self._encoder = Encoder(manifest, graphs, outputs) if graphs.encode else None
        self._attention = None
        if graphs.attention:
            num_at_once = tokens_at_once(manifest, config.prefill_chunk)
            self._attention = AttentionStep(manifest, graphs.attention, batch.slots, num_at_once)
        self._shortlists = None
        if manifest.has_shortlist:
            self._shortlists = Shortlists(manifest.vocab_size, self._num_rows)
        self._shortlist_widths: tuple[int, ...] = ()
        self._logp_switch = {is_on: np.array(is_on) for is_on in (False, True)}
        self._prompt_ids = np.zeros((1, config.prefill_chunk), np.int64)
        self._prompt_lengths = np.zeros(3, np.int32)
        self._bound: dict[Hashable, Run] = {}
        self._launched_attention: AttentionOutputs = {}
        self.has_launched = False

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        return [] if self._shortlists is None else [self._shortlists]

    @property
    def can_launch_ahead(self) -> bool:
        return False

    def encode(self, first_row: int, sources: Sequence[Source], span: int) -> None:
        """Set the states of new rows from their sources, padded to `span`; zero them for rows
        without a source.
        """
        if self._encoder is not None:
            self._encoder.run(sources, span)
        self.states.fill_rows(first_row, len(sources), span)

    def encode_with_attention(self, row: int, source: Source, span: int) -> Array:
        """Encode the source of one new row; return its attention weights, f32 [heads,
        span, span].
        """
        assert self._encoder is not None
        weights = self._encoder.run_with_attention(source, span)
        self.states.fill_rows(row, 1, span)
        return weights

    def prefill(
        self, row: int, num_past: int, token_ids: Array, num_source_tokens: int = 0
    ) -> None:
        """Run tokens (i64, at most a chunk) over the states of a row behind the batch, which
        contain `num_past` tokens and a source.
        """
        arrays = self._prompt_arrays(row, num_past, token_ids, num_source_tokens)
        self._step.bind(*arrays)()
        self.states.sync_row(row)

    def prefill_with_attention(self, row: int, num_past: int, token_ids: Array) -> Array:
        """Prefill; return the attention weights of the tokens, f32 [heads, tokens, positions]."""
        assert self._attention is not None
        arrays, count = self._prompt_arrays(row, num_past, token_ids), len(token_ids)
        run, weights = self._attention.bind_prompt(*arrays, count, num_past + count)
        run()
        self.states.sync_row(row)
        return weights

    def launch(self, num_rows: int, outputs: StepOutputs = LOGP_ONLY) -> None:
        """Score the next token of the rows [0, num_rows).

        Attention does not change the scores, but needs another graph. Without log-probabilities
        only the likeliest tokens are valid.
        """
        self._launched_attention = self._run_step(self._pad(num_rows), outputs)
        self.has_launched = True
        self._batch.num_ahead += 1

    def receive(self) -> Scores:
        """Wait for the oldest run; return the scores of the current rows. The next run overwrites
        them.
        """
        self.has_launched = False
        rows, shortlists = slice(self._batch.num_rows), self._shortlists
        scored, *window = (array[rows] for array in self._scores.values())
        are_logits, memory = self._manifest.scores.name == LOGITS, self._whole_rows[rows]
        if shortlists is None:
            scores = Scores(scored, *window, are_logits=are_logits, memory=memory)
        else:
            scores = ShortlistScores(scored, *window, are_logits=are_logits, memory=memory)
            scores.shortlists = shortlists.ids[rows]
        scores.attention = self._launched_attention
        return scores

    def abandon(self) -> None:
        """Discard the runs that were launched; their rows were removed."""
        self.has_launched = False
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
            longest = self._manifest.limits.max_target_tokens
            row = next(iter(self.staging_rows), 0)
            self.prefill(row, 0, self._prompt_ids[0, :longest].copy(), num_source_tokens=1)
        self._run_all_slots()
        self._bound.clear()
        try:
            self._record()
        except (DeviceError, OutOfMemory) as error:
            logger.warning("%d shapes were recorded, then: %s", len(self._bound), error)
        num_shapes = len(self._bound)
        self._run_all_slots()
        return num_shapes

    def _run_all_slots(self) -> None:
        self.launch(self._batch.slots)
        self.abandon()

    def _record(self) -> None:
        if self._recording is None:
            return
        with _no_garbage_collection():
            for _ in self.states.iterate_buffers():
                for rows in reversed(all_rows(self._grid, self._batch.slots)):
                    self._batch.pad(rows)
                    run = self._recording.record(*self._step_arrays(rows, LOGP_ONLY))
                    self._bound[rows, self.states.buffer_key, LOGP_ONLY] = run

    def _pad(self, num_rows: int) -> int:
        """Pad the batch to a shape in which the graph runs; return its number of rows."""
        rows = self._grid.rows(num_rows, self._batch.slots)
        if rows > num_rows:
            self._batch.pad(rows)
        return rows

    def _run_step(self, num_rows: int, outputs: StepOutputs) -> AttentionOutputs:
        """Run the step graph; return its attention weights, f32 [rows, heads, positions]."""
        if self._shortlists is not None:
            self._fit_shortlists(self._shortlists, num_rows)
        if not outputs.logp and WANTS_LOGP not in self._input_names:
            outputs = replace(outputs, logp=True)
        attention: AttentionOutputs = {}
        graph_span = None
        if outputs.attention:
            assert self._attention is not None
            num_attended = self._attention.round_up_attended(outputs.num_attended)
            outputs = replace(outputs, num_attended=num_attended)
            graph_span = AttentionSpan(self.states.span, num_attended)
            attention = self._attention.outputs(outputs.attention, num_rows, graph_span)
        key = (num_rows, self.states.buffer_key, outputs)
        run = self._bound.get(key)
        if run is None:
            arrays = self._step_arrays(num_rows, outputs)
            if self._attention is not None and graph_span is not None:
                run = self._attention.bind(*arrays, attention, graph_span)
            else:
                run = self._step.bind(*arrays)
            self._bound[key] = run
        run()
        self.states.swap_buffers()
        return attention

    def _fit_shortlists(self, shortlists: Shortlists, num_rows: int) -> None:
        """Bind the graph again if the arrays of the shortlists have another width."""
        widths = shortlists.fit(num_rows)
        if widths != self._shortlist_widths:
            self._shortlist_widths = widths
            self._scores[self._manifest.scores.name] = shortlists.score_buffer
            self._bound.clear()

    @cached_property
    def _scores(self) -> Arrays:
        """Return the arrays to which the step graph writes the scores of each row: first those of
        all tokens, then its window of the likeliest.
        """
        scores = self._manifest.scores
        if self._shortlists is not None:
            scored = self._shortlists.score_buffer
        else:
            scored = np.zeros((self._num_rows, int(scores.shape[1])), np.float32)
        return {scores.name: scored, **allocate_window(self._manifest, self._num_rows)}

    @cached_property
    def _whole_rows(self) -> Array:
        """Return memory for the log-probabilities of rows that are read whole."""
        return np.zeros((self._num_rows, self._manifest.vocab_size), np.float32)

    def _step_inputs(self, num_rows: int) -> Arrays:
        """Return the inputs of the step graph, except for states."""
        batch = self._batch
        inputs: Arrays = {
            "ids": batch.ids[:num_rows],
            "past_lengths": batch.past_lengths[:num_rows],
            "total_lengths": batch.total_lengths[:num_rows],
            "source_lengths": batch.source_lengths[:num_rows],
        }
        if self._shortlists is not None:
            inputs |= self._shortlists.inputs(num_rows)
        return inputs

    def _step_outputs(self, rows: slice) -> Arrays:
        """Return the arrays for the outputs of the step graph, except for states."""
        return {name: array[rows] for name, array in self._scores.items()}

    def _step_arrays(self, num_rows: int, outputs: StepOutputs) -> tuple[Arrays, Arrays]:
        score_arrays = self._step_outputs(slice(num_rows))
        inputs = self._step_inputs(num_rows)
        inputs[WANTS_LOGP] = self._logp_switch[outputs.logp]
        if not outputs.logp:
            score_arrays.pop(LOGP, None)  # it is not computed
        return self._add_states(0, num_rows, inputs, score_arrays)

    def _prompt_arrays(
        self, row: int, num_past: int, token_ids: Array, num_source_tokens: int = 0
    ) -> tuple[Arrays, Arrays]:
        ids, lengths = self._prompt_ids[:, : len(token_ids)], self._prompt_lengths
        ids[0] = token_ids
        lengths[:] = num_past, num_past + len(token_ids), num_source_tokens
        names = "past_lengths", "total_lengths", "source_lengths"
        inputs: Arrays = {"ids": ids}
        inputs |= {name: lengths[i : i + 1] for i, name in enumerate(names)}
        return self._add_states(row, row + 1, inputs, self._step_outputs(slice(row, row + 1)))

    def _add_states(
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
