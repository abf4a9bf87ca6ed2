"""RCTM: encode makes one vector of the source, step reads it as a constant beside every token.

There is no attention, so that there is no graph that tells of it.
"""

from itertools import accumulate

import numpy as np

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter, Value, element_type
from export.layers.attention import is_real
from export.layers.basic import Layers
from export.layers.cells import STEPS, advance, cell_states, cell_step
from export.layers.vocabulary import Vocabulary
from models.configs.translators.rctm import RctmConfig
from serving.bundle.manifest import Precision, StateKind, StateSpec


def build(config: RctmConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Encode(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Step(config, Layers(GraphWriter("step"), weights, precision))
    encode.build()
    step.build()
    return translation_model(
        config,
        graphs=(encode.graph, step.graph),
        states=(step.context, *step.cells),
    )


class SentenceModel:
    """One turn of a loop for each convolution that the longest row needs.

    All is computed feature by feature: x is [batch, embedding_dim, columns], zeros behind. In bf16
    it is so in fp32: CUDA has no convolution and no padding of the other.
    """

    def __init__(self, config: RctmConfig, layers: Layers) -> None:
        self._graph, self._dim = layers.graph, config.embedding_dim
        self._outer_dtype = layers.dtype
        self._dtype = "float32" if layers.dtype == "bfloat16" else layers.dtype
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
        """embedded [batch, source, embedding_dim] -> [batch, embedding_dim]."""
        graph, op = self._graph, self._graph.op
        is_cast = self._dtype != self._outer_dtype
        if is_cast:
            embedded = op.Cast(embedded, to=element_type(self._dtype))
        x = op.Transpose(embedded, perm=[0, 2, 1])
        first = op.Slice(x, graph.ints(0), graph.ints(1), graph.ints(2))
        x = op.Pad(x, graph.ints(0, 0, 0, 0, 0, self._num_kernels))  # room for the last kernel

        def turn(index: Value, x: Value, vector: Value) -> tuple[Value, Value]:
            left = op.Sub(lengths, op.Gather(self._shrunk, index))
            convolved = self._convolve(x, left, index)
            column = op.Slice(convolved, graph.ints(0), graph.ints(1), graph.ints(2))
            goes_on = op.Greater(left, graph.constant(1, "int32"))
            return convolved, op.Where(op.Unsqueeze(goes_on, graph.ints(1, 2)), column, vector)

        _, vector = graph.loop(self._num_turns(lengths), [x, first], self._dtype, turn)
        sentence = op.Squeeze(vector, graph.ints(2))
        return op.Cast(sentence, to=element_type(self._outer_dtype)) if is_cast else sentence

    def _num_turns(self, lengths: Value) -> Value:
        """Until one column is left of the longest row."""
        graph, op = self._graph, self._graph.op
        longest = op.ReduceMax(lengths, graph.ints(0), keepdims=1)
        goes_on = op.Greater(op.Sub(longest, self._shrunk), graph.constant(1, "int32"))
        return op.ReduceSum(op.Cast(goes_on, to=7), graph.ints(0), keepdims=0)

    def _convolve(self, x: Value, left: Value, index: Value) -> Value:
        """tanh(K * x): every feature by its own kernel, over the row's columns that are left."""
        graph, op = self._graph, self._graph.op
        index = op.Unsqueeze(index, graph.ints(0))
        span = op.Gather(self._starts, index), op.Gather(self._ends, index)
        kernel = op.Slice(self._kernels, *span, graph.ints(2))
        any_feature = op.Gather(x, graph.constant(0, "int64"), axis=1)  # for its shape
        real = op.Unsqueeze(is_real(graph, any_feature, left), graph.ints(1))
        x = op.Where(real, x, graph.constant(0, self._dtype))
        return op.Tanh(op.Conv(x, kernel, group=self._dim))


class _Part:
    """What both graphs share: the states, words, and what the cell reads."""

    def __init__(self, config: RctmConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.vocabulary = Vocabulary(config, layers)
        self.num_gates = STEPS[config.cell].num_gates * config.hidden_dim
        self.context = StateSpec("context", StateKind.CONSTANT, (self.num_gates,), layers.dtype)
        (self.cells,) = cell_states(config.cell, config.hidden_dim, layers.dtype, num_layers=1)

    def gates(self, x: Value, name: str, *, bias: bool) -> Value:
        """[..., embedding_dim] -> a part of the cell's input [..., num_gates]."""
        dim = self.config.embedding_dim
        return self.layers.linear(x, [name], dim, [self.num_gates], bias=bias)


class _Encode(_Part):
    def build(self) -> None:
        """S csm(e); the cell begins with zeros."""
        ids, lengths = source_inputs(self.graph)
        embedded = self.vocabulary.embed_source(ids)
        sentence = SentenceModel(self.config, self.layers).encode(embedded, lengths)
        context = self.gates(sentence, "decoder.context", bias=False)
        self.graph.state_output(self.context, context)


class _Step(_Part):
    def build(self) -> None:
        graph, sizes = self.graph, (self.config.hidden_dim, [self.config.readout_dim])
        embedded = self.vocabulary.embed_token(graph.input("ids", "int64", (1,)))
        word = self.gates(embedded, "decoder.input", bias=True)
        inputs = graph.op.Add(word, graph.state_input(self.context))
        cell = cell_step(self.layers, self.config.cell, "decoder.hidden", self.config.hidden_dim)
        hidden = advance(self.layers, cell, inputs, self.cells)
        self.vocabulary.choose(self.layers.linear(hidden, ["readout"], *sizes, bias=False))
