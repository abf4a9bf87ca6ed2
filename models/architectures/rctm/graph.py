"""Graphs of RCTM: `encode` makes one vector of the source, `step` reads it with every token.

Without attention there is no graph `step_attention`.
"""

from itertools import accumulate

import numpy as np

from export.graph.writer import Value
from export.layers.attention import is_real
from export.layers.basic import Layers
from export.layers.recurrent import advance, cell_states, cell_step
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.rctm.config import RctmConfig
from models.layers.equations import CELLS
from serving.bundle.manifest import StateKind, StateSpec


class SentenceModelGraph:
    """A loop with one iteration for each convolution that the longest row needs.

    Each feature is computed by itself: x is [batch, embedding_dim, columns], with zeros at the end.
    For bf16 this is in fp32, as CUDA has no convolution or padding in bf16.
    """

    def __init__(self, config: RctmConfig, layers: Layers) -> None:
        self._graph, self._dim = layers.graph, config.embedding_dim
        self._dtype = layers.target.common_dtype
        sizes = config.kernel_sizes
        kernels = [
            layers.weights.take(f"sentence.kernels.{i}", self._dim, 1, size)
            for i, size in enumerate(sizes)
        ]
        self._num_kernels = len(kernels)
        joined = np.concatenate(kernels, axis=2).astype(self._dtype)
        self._kernels = self._graph.weight("sentence.kernels", joined)
        ends = [*accumulate(sizes)]
        self._ends = self._graph.ints(*ends)
        self._starts = self._graph.ints(0, *ends[:-1])
        shrunk = [*accumulate((size - 1 for size in sizes), initial=0)]
        self._shrunk = self._graph.constant(shrunk[:-1], "int32")  # columns lost before each turn

    def encode(self, embedded: Value, lengths: Value) -> Value:
        """Return vectors [batch, embedding_dim] of words [batch, source, embedding_dim]."""
        graph, op = self._graph, self._graph.op
        x = embedded.cast(self._dtype).transpose(0, 2, 1)
        first = x[:, :, :1]
        x = op.Pad(x, graph.ints(0, 0, 0, 0, 0, self._num_kernels))  # room for the last kernel

        def write_iteration(index: Value, x: Value, vector: Value) -> tuple[Value, Value]:
            num_left = lengths - op.Gather(self._shrunk, index)
            convolved = self._convolve(x, num_left, index)
            column = convolved[:, :, :1]
            needs_more = num_left > 1
            return convolved, column.where(needs_more.unsqueeze(1, 2), vector)

        _, vector = graph.loop(
            self._num_iterations(lengths), [x, first], self._dtype, write_iteration
        )
        return vector.squeeze(2).cast(embedded.dtype)

    def _num_iterations(self, lengths: Value) -> Value:
        """Return the number of iterations after which one column of the longest row is left."""
        longest = lengths.max(0, keepdims=True)
        return (longest - self._shrunk > 1).cast("int64").sum(0)

    def _convolve(self, x: Value, num_left: Value, index: Value) -> Value:
        """Return tanh(K * x): every feature by its own kernel, over the columns that are left."""
        graph, op = self._graph, self._graph.op
        index = index.unsqueeze(0)
        span = op.Gather(self._starts, index), op.Gather(self._ends, index)
        kernel = op.Slice(self._kernels, *span, graph.ints(2))
        any_feature = x[:, 0]  # for its shape
        x = x.where(is_real(any_feature, num_left).unsqueeze(1), 0)
        convolved: Value = op.Conv(x, kernel, group=self._dim)
        return convolved.tanh()


class RctmGraph(TranslatorGraph[RctmConfig]):
    alignment_heads = ()

    def __init__(self, config: RctmConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.words = recurrent_vocabulary(layers, config)
        self.num_gates = CELLS[config.cell].num_gates * config.hidden_dim
        self.context = layers.state("context", StateKind.CONSTANT, self.num_gates)
        (self.cells,) = cell_states(config.cell, config.hidden_dim, layers.dtype, num_layers=1)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.context, *self.cells)

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write S csm(e). The cell begins with zeros."""
        embedded = self.words.embed_source(ids)
        sentence = SentenceModelGraph(self.config, self.layers).encode(embedded, lengths)
        context = self._gates(sentence, "decoder.context", bias=False)
        self.graph.state_output(self.context, context)

    def step(self) -> None:
        config = self.config
        word = self._gates(self.words.embed_token(self.ids), "decoder.input", bias=True)
        inputs = word + self.graph.state_input(self.context)
        cell = cell_step(self.layers, config.cell, "decoder.hidden", config.hidden_dim)
        hidden = advance(self.layers, cell, inputs, self.cells)
        sizes = config.hidden_dim, [config.readout_dim]
        self.words.choose(self.layers.linear(hidden, ["readout"], *sizes, bias=False))

    def _gates(self, x: Value, name: str, *, bias: bool) -> Value:
        """Project x [..., embedding_dim] to a part of the cell's input [..., num_gates]."""
        dim = self.config.embedding_dim
        return self.layers.linear(x, [name], dim, [self.num_gates], bias=bias)


build = RctmGraph.build
