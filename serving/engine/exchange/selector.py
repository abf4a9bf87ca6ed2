"""Lets the device choose next tokens, by the select graph, for the rows whose requests allow it."""

from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.exchange.blocks import Block, Field, StreamMemory
from serving.engine.exchange.edits import EDITS, edits_of, write_edits
from serving.engine.exchange.eligibility import can_choose, is_plain
from serving.engine.generation import Generation
from serving.engine.graphs.graph import Graph, Run
from serving.engine.processing.processors import Processors
from serving.engine.rows import Follower
from serving.engine.sampling.sampler import Sampler
from serving.parameters import NO_PROCESSORS

PARAMS = {
    "uniform": "float64",
    "exponent": "float32",
    "top_k": "int64",
    "top_p": "float64",
    "min_p": "float32",
}
NEUTRAL = (0, 1, 1, 1, 0)  # that of a greedy row
CHOICES = {"token_ids": "int64", "token_logp": "float32", "is_dead": "bool"}


@dataclass(frozen=True, slots=True)
class Deciders:
    """Holds what knows of each row how its token is chosen. is_excluded: bool [vocabulary]."""

    processors: Processors
    sampler: Sampler
    is_excluded: Array


class Selector(Follower):
    """Remembers of each row whether the device chooses for it, and writes what it chooses by.

    All are bool [slots]. is_served: rows it chooses for. is_plain: those that need no select graph
    for it. is_independent: those whose tokens make no difference to how the next ones are chosen.
    """

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        memory: StreamMemory,
        graph: Graph | None,
        deciders: Deciders,
    ) -> None:
        """graph: None where the bundle has none."""
        self._batch, self._memory, self._graph, self._deciders = batch, memory, graph, deciders
        self._neutral_id, self._vocab_size = manifest.tokens.stop[0], manifest.vocab_size
        self._has_exclusions = bool(deciders.is_excluded.any())
        self._is_excluded = memory.zeros((self._vocab_size,), "bool")
        memory.copy(self._is_excluded, deciders.is_excluded)
        self.is_served, self.is_plain, self.is_independent = np.zeros((3, batch.slots), bool)
        self._blocks: dict[int, Block] = {}
        self._num_edits = 0
        self._bound: dict[tuple[int, int], Run] = {}

    def admit(self, row: int, generation: Generation) -> None:
        self.is_plain[row] = is_plain(generation) and not self._has_exclusions
        can_select = self._graph is not None and can_choose(generation, self._vocab_size)
        self.is_served[row] = self.is_plain[row] or can_select
        is_edited = generation.request.processors != NO_PROCESSORS
        self.is_independent[row] = self.is_served[row] and not is_edited

    def copy(self, source: int, target: int) -> None:
        for column in (self.is_served, self.is_plain, self.is_independent):
            column[target] = column[source]

    def move(self, source: int, target: int) -> None:
        self.copy(source, target)
        self.forget(source)

    def forget(self, row: int) -> None:
        for column in (self.is_served, self.is_plain, self.is_independent):
            column[row] = False

    def is_needed(self, num_rows: int) -> bool:
        """Tell whether the select graph has a token to choose."""
        return bool((self.is_served[:num_rows] & ~self.is_plain[:num_rows]).any())

    def write(self, arrays: dict[str, Array], num_rows: int, turn: int) -> None:
        """Write what the next run chooses by. arrays: parameters by name, [slots]."""
        for name, neutral in zip(PARAMS, NEUTRAL, strict=True):
            arrays[name][:num_rows] = neutral
        is_drawn = self._deciders.sampler.is_sampled[:num_rows] & self.is_served[:num_rows]
        rows = np.flatnonzero(is_drawn)
        num_drawn = self._batch.num_generated[rows] + self._batch.num_ahead
        draws = self._deciders.sampler.draws(rows, num_drawn)
        arrays["uniform"][rows] = draws.numbers
        arrays["exponent"][rows] = draws.exponents
        arrays["top_p"][rows], arrays["min_p"][rows] = draws.values("top_p"), draws.values("min_p")
        top_k = draws.values("top_k")
        arrays["top_k"][rows] = np.where(np.isinf(top_k), 0, top_k)
        self._write_edits(num_rows, turn)

    def run(
        self,
        num_rows: int,
        scores: dict[str, Array],
        params: dict[str, Array],
        to: dict[str, Array],
    ) -> None:
        """Choose. scores, params, to: arrays on the device, of all slots."""
        key = (num_rows, self._num_edits)
        if key not in self._bound:
            assert self._graph is not None
            edits = self._blocks[self._num_edits].device
            inputs = {name: each[:num_rows] for name, each in (scores | params | edits).items()}
            inputs["is_excluded"] = self._is_excluded
            self._bound[key] = self._graph.bind(inputs, {name: to[name][:num_rows] for name in to})
        self._bound[key]()

    def _write_edits(self, num_rows: int, turn: int) -> None:
        """Fill and upload the smallest arrays that have room for the longest row's edits."""
        rows = self._deciders.processors.rows.items()
        is_excluded = self._deciders.is_excluded
        found = {row: edits_of(each, is_excluded) for row, each in rows if self.is_served[row]}
        found = {row: edits for row, edits in found.items() if len(edits.token_ids)}
        lengths = [len(edits.token_ids) for edits in found.values()]
        self._num_edits = 1 << (max(lengths, default=1) - 1).bit_length()
        if self._num_edits not in self._blocks:
            shape = (self._batch.slots, self._num_edits)
            fields = {name: Field(shape, dtype) for name, dtype in EDITS.items()}
            self._blocks[self._num_edits] = Block(self._memory, fields)
        block = self._blocks[self._num_edits]
        write_edits(found, self._neutral_id, block.host[turn])
        block.upload(turn, "edit_ids")
