"""Choose next tokens on the device, with the select graph, for requests that allow it.

Whether the device chooses depends on the request alone, so that tokens do not depend on the rest of
the batch: a device draws other tokens than the host, with the same distribution.
"""

from dataclasses import dataclass

import numpy as np

from serving.bundle.manifest import MAX_TOP_K, Manifest
from serving.engine.arrays import Array
from serving.engine.cuda.transfer_buffer import ArraySpec, TransferBuffer
from serving.engine.decoding.logit_edits import BIAS, PENALTY, RowProcessors
from serving.engine.decoding.search import Search
from serving.engine.generation import Generation
from serving.engine.rows import Batch, RowObserver
from serving.engine.runtime.graph import Graph, Run
from serving.engine.states.memory import StreamMemory

PARAMS = {
    "uniform": "float64",
    "exponent": "float32",
    "top_k": "int64",
    "top_p": "float64",
    "min_p": "float32",
}
NEUTRAL = (0, 1, 1, 1, 0)  # the parameters of a greedy row
CHOICES = {"token_ids": "int64", "token_logp": "float32", "is_dead": "bool"}


class DeviceSampler(RowObserver):
    """Decides for each row whether the device chooses, and writes the parameters.

    All arrays are bool [slots].
    is_served: rows for which it chooses.
    is_plain: rows of these that need no select graph.
    is_independent: rows whose next choice does not depend on the tokens so far.
    """

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        memory: StreamMemory,
        graph: Graph | None,
        search: Search,
    ) -> None:
        """graph: None if the bundle has none. search: defines how the rows' tokens are chosen."""
        self._batch, self._memory, self._graph = batch, memory, graph
        self._processors, self._sampler = search.processors, search.sampler
        self._is_excluded = search.exclusions.is_excluded  # bool [vocabulary]
        self._neutral_id, self._vocab_size = manifest.tokens.stop[0], manifest.vocab_size
        self._has_exclusions = bool(self._is_excluded.any())
        self._is_excluded_on_device = memory.zeros((self._vocab_size,), "bool")
        memory.copy(self._is_excluded_on_device, self._is_excluded)
        self.is_served, self.is_plain, self.is_independent = np.zeros((3, batch.slots), bool)
        self._edit_buffers: dict[int, TransferBuffer] = {}
        self._num_edits = 0
        self._bound: dict[tuple[int, int], Run] = {}

    def on_add(self, row: int, generation: Generation) -> None:
        self.is_plain[row] = is_plain(generation) and not self._has_exclusions
        can_select = self._graph is not None and can_choose(generation, self._vocab_size)
        self.is_served[row] = self.is_plain[row] or can_select
        self.is_independent[row] = self.is_served[row] and not generation.has_processors

    def on_copy(self, source: int, target: int) -> None:
        for column in (self.is_served, self.is_plain, self.is_independent):
            column[target] = column[source]

    def on_move(self, source: int, target: int) -> None:
        self.on_copy(source, target)
        self.on_remove(source)

    def on_remove(self, row: int) -> None:
        for column in (self.is_served, self.is_plain, self.is_independent):
            column[row] = False

    def is_needed(self, num_rows: int) -> bool:
        """Return whether the select graph has a token to choose."""
        return bool((self.is_served[:num_rows] & ~self.is_plain[:num_rows]).any())

    def write(self, arrays: dict[str, Array], num_rows: int, buffer_index: int) -> None:
        """Write the parameters of the next run. arrays: by name, [slots]."""
        for name, neutral in zip(PARAMS, NEUTRAL, strict=True):
            arrays[name][:num_rows] = neutral
        is_drawn = self._sampler.is_sampled[:num_rows] & self.is_served[:num_rows]
        rows = np.flatnonzero(is_drawn)
        num_drawn = self._batch.num_generated[rows] + self._batch.num_ahead
        inputs = self._sampler.sampling_inputs(rows, num_drawn)
        arrays["uniform"][rows] = inputs.numbers
        arrays["exponent"][rows] = inputs.exponents
        arrays["top_p"][rows], arrays["min_p"][rows] = (
            inputs.values("top_p"),
            inputs.values("min_p"),
        )
        top_k = inputs.values("top_k")
        arrays["top_k"][rows] = np.where(np.isinf(top_k), 0, top_k)
        self._write_edits(buffer_index)

    def run(
        self,
        num_rows: int,
        scores: dict[str, Array],
        params: dict[str, Array],
        choices: dict[str, Array],
    ) -> None:
        """Choose tokens. scores, params, choices: arrays on the device, of all slots."""
        key = (num_rows, self._num_edits)
        if key not in self._bound:
            assert self._graph is not None
            edits = self._edit_buffers[self._num_edits].device
            arrays = (scores | params | edits).items()
            inputs = {name: array[:num_rows] for name, array in arrays}
            inputs["is_excluded"] = self._is_excluded_on_device
            outputs = {name: array[:num_rows] for name, array in choices.items()}
            self._bound[key] = self._graph.bind(inputs, outputs)
        self._bound[key]()

    def _write_edits(self, buffer_index: int) -> None:
        """Fill and upload the smallest arrays that can contain the longest row's edits."""
        rows = self._processors.rows.items()
        edits_by_row = {
            row: row_edits(processors, self._is_excluded)
            for row, processors in rows
            if self.is_served[row]
        }
        edits_by_row = {row: edits for row, edits in edits_by_row.items() if len(edits.token_ids)}
        lengths = [len(edits.token_ids) for edits in edits_by_row.values()]
        self._num_edits = 1 << (max(lengths, default=1) - 1).bit_length()
        if self._num_edits not in self._edit_buffers:
            shape = (self._batch.slots, self._num_edits)
            specs = {name: ArraySpec(shape, dtype) for name, dtype in EDITS.items()}
            self._edit_buffers[self._num_edits] = TransferBuffer(self._memory, specs)
        buffer = self._edit_buffers[self._num_edits]
        write_edits(edits_by_row, self._neutral_id, buffer.host[buffer_index])
        buffer.upload(buffer_index, "edit_ids")


EDITS = {
    "edit_ids": "int64",
    "edit_bias": "float64",
    "edit_penalty": "float64",
    "edit_toll": "float64",
}


@dataclass(frozen=True, slots=True)
class RowEdits:
    """The edits of one row's scores.

    token_ids: i64 [edits], each once.
    columns: f64 [3, edits], as in `Penalties`: bias, repetition penalty, other penalties; a bias of
        -inf is a ban.
    """

    token_ids: Array
    columns: Array


def row_edits(processors: RowProcessors, is_excluded: Array) -> RowEdits:
    """Return the edits of a row; excluded tokens stay excluded unless the request asks for them.

    is_excluded: bool [vocabulary].
    """
    none = np.zeros(0, np.int64)
    banned = np.unique(np.concatenate([none, *processors.banned_ids()]))
    bans = np.zeros((3, len(banned)))
    bans[BIAS], bans[PENALTY] = -np.inf, 1
    if processors.penalties is None:
        return RowEdits(banned, bans)
    token_ids = processors.penalties.token_ids
    is_requested = np.isin(token_ids, processors.requested_ids)
    is_kept = (is_requested | ~is_excluded[token_ids]) & ~np.isin(token_ids, banned)
    columns = processors.penalties.columns[:, is_kept]
    return RowEdits(
        np.concatenate([token_ids[is_kept], banned]), np.concatenate([columns, bans], axis=1)
    )


def write_edits(rows: dict[int, RowEdits], neutral_id: int, arrays: dict[str, Array]) -> None:
    """Fill arrays [rows, edits]. A row is padded with its first edit; a row without edits with an
    edit that does not change the neutral token, which is never excluded.
    """
    for name, neutral in zip(EDITS, (neutral_id, 0, 1, 0), strict=True):
        arrays[name][...] = neutral
    for row, edits in rows.items():
        for name, values in zip(EDITS, (edits.token_ids, *edits.columns), strict=True):
            arrays[name][row, : len(values)], arrays[name][row, len(values) :] = values, values[0]


SERVED_FILTERS = {"top_k", "top_p", "min_p"}


def can_choose(generation: Generation, vocab_size: int) -> bool:
    """Return whether the select graph supports all options of a request."""
    request, sampling = generation.request, generation.request.sampling
    is_searched = request.beam is not None
    processors = request.processors
    is_masked = (
        request.constraint is not None
        or processors.allowed_ids is not None
        or processors.timestamps is not None
    )
    can_filter = sampling.filters.keys() <= SERVED_FILTERS
    can_rank = sampling.top_k <= MAX_TOP_K or sampling.top_k >= vocab_size
    can_draw = sampling.is_greedy or (can_filter and can_rank)
    has_decay = generation.model_processors.exponential_decay_length_penalty is not None
    return can_draw and not is_searched and not is_masked and not has_decay


def is_plain(generation: Generation) -> bool:
    """Return whether it takes its likeliest token at every step, independent of earlier tokens."""
    request = generation.request
    is_greedy = request.sampling.is_greedy and request.beam is None and request.constraint is None
    return is_greedy and not generation.has_processors
