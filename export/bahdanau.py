"""RNNsearch: a bidirectional GRU encoder, and a decoder step with additive attention.

The step is explicit cells. Projections of the same input are one matrix product: of the previous
hidden state, of the previous token, and of the context.
"""

import numpy as np

from export.attention import is_real, ragged_softmax
from export.graph import Array, GraphWriter, Value
from export.layers import Layers
from export.model import ExportedModel
from export.translation import source_inputs, translation_limits, translation_tokens
from export.weights import Weights
from models.configs.bahdanau import BahdanauConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: BahdanauConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Encode(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Step(config, Layers(GraphWriter("step"), weights, precision))
    step_attention = _Step(config, Layers(GraphWriter("step_attention"), weights, precision))
    encode.build()
    step.build()
    step_attention.build(with_attention=True)
    return ExportedModel(
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=step.states,
        tokens=translation_tokens(config),
        limits=translation_limits(config),
        alignment_heads=(0,),
    )


class _Part:
    """What both graphs share: the states, and how tokens are embedded."""

    def __init__(self, config: BahdanauConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.memory_dim = 2 * config.hidden_dim
        constant, dtype = StateKind.CONSTANT, layers.dtype
        self.memory = StateSpec("memory", constant, (SOURCE, self.memory_dim), dtype)
        self.keys = StateSpec("keys", constant, (SOURCE, config.attention_dim), dtype)
        self.hidden = StateSpec("hidden", StateKind.REPLACE, (config.hidden_dim,), dtype)
        self.states = (self.memory, self.keys, self.hidden)

    def embed(self, ids: Value, side: str) -> Value:
        name = "embedding" if self.config.tied_embeddings else f"{side}_embedding"
        return self.layers.embed(ids, name, self.config.vocab_size, self.config.embedding_dim)


class _Encode(_Part):
    def build(self) -> None:
        config, graph, op = self.config, self.graph, self.graph.op
        ids, lengths = source_inputs(graph)
        outputs, ends = self._bidirectional_gru(ids, lengths)
        joined = op.Transpose(outputs, perm=[2, 0, 1, 3])  # [batch, source, direction, hidden]
        memory = op.Reshape(joined, graph.ints(0, 0, self.memory_dim))
        keys = self.layers.linear(
            memory, ["attention.key"], self.memory_dim, [config.attention_dim], bias=True
        )
        start = op.Gather(ends, graph.constant(1, "int64"), axis=0)  # the backward direction's end
        hidden = op.Tanh(
            self.layers.linear(
                start, ["initial"], config.hidden_dim, [config.hidden_dim], bias=True
            )
        )
        graph.state_output(self.memory, memory)
        graph.state_output(self.keys, keys)
        graph.state_output(self.hidden, hidden)

    def _bidirectional_gru(self, ids: Value, lengths: Value) -> tuple[Value, Value]:
        """All hidden states [source, direction, batch, hidden] and the last of each direction."""
        hidden_dim = self.config.hidden_dim
        embedded = self.embed(self.graph.op.Transpose(ids, perm=[1, 0]), "source")
        weights = [
            self.layers.float_weight(f"encoder.{name}", array)
            for name, array in self._gru_weights().items()
        ]
        outputs, ends = self.graph.op.GRU(
            embedded,
            *weights,
            lengths,
            hidden_size=hidden_dim,
            direction="bidirectional",
            linear_before_reset=1,
            _outputs=2,
        )
        return outputs, ends

    def _gru_weights(self) -> dict[str, Array]:
        """ONNX's W, R and B [direction, ...]; its gates come in the order update, reset, new."""
        gates, hidden_dim = 3 * self.config.hidden_dim, self.config.hidden_dim
        take = self.layers.weights.take
        shapes = {
            "weight_ih": (gates, self.config.embedding_dim),
            "weight_hh": (gates, hidden_dim),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }
        by_name = {
            name: np.stack([take(f"encoder.{name}_l0{end}", *shape) for end in ("", "_reverse")])
            for name, shape in shapes.items()
        }
        order = np.concatenate([np.arange(hidden_dim) + i * hidden_dim for i in (1, 0, 2)])
        by_name = {name: array[:, order] for name, array in by_name.items()}
        bias = np.concatenate([by_name.pop("bias_ih"), by_name.pop("bias_hh")], axis=1)
        return {**by_name, "bias": bias}


class _Step(_Part):
    def build(self, with_attention: bool = False) -> None:
        graph, op = self.graph, self.graph.op
        ids = graph.input("ids", "int64", (1,))
        source_lengths = graph.input("source_lengths", "int32", ())
        memory, keys = graph.state_input(self.memory), graph.state_input(self.keys)
        hidden = graph.state_input(self.hidden)
        query, *recurrent = self._project_hidden(hidden)
        weights = self._align(query, keys, source_lengths)
        context = self._mix(weights, memory)
        embedded = op.Squeeze(self.embed(ids, "target"), graph.ints(1))
        gates_and_readout = op.Add(self._project_token(embedded), self._project_context(context))
        inputs = graph.split(gates_and_readout, self._sizes)
        next_hidden = self._cell(inputs[:2], recurrent, hidden)
        graph.next_state(self.hidden, next_hidden)
        readout = self._maxout(op.Add(self._project_state(next_hidden), inputs[2]))
        self.layers.choose(self._logits(readout), self.config.vocab_size)
        if with_attention:
            one_head = op.Unsqueeze(weights, graph.ints(1))
            graph.output("attention", one_head, "float32", (1, SOURCE))

    @property
    def _sizes(self) -> list[int]:
        """Of what the token and the context feed: reset and update, new, readout pairs."""
        config = self.config
        return [2 * config.hidden_dim, config.hidden_dim, 2 * config.readout_dim]

    def _align(self, query: Value, keys: Value, source_lengths: Value) -> Value:
        """softmax(v . tanh(query + keys)) over each row's own source: f32 [batch, source]."""
        op, graph, config = self.graph.op, self.graph, self.config
        score = self.layers.weights.take("attention.score.weight", 1, config.attention_dim)
        score_weight = self.layers.float_weight("attention.score.weight", score[0])
        hidden = op.Tanh(op.Add(op.Unsqueeze(query, graph.ints(1)), keys))
        energy = op.ReduceSum(op.Mul(hidden, score_weight), graph.ints(-1), keepdims=0)
        if self.layers.dtype != "float32":
            energy = op.Cast(energy, to=1)
        return ragged_softmax(graph, energy, is_real(graph, energy, source_lengths))

    def _mix(self, weights: Value, memory: Value) -> Value:
        """Context vectors; MatMul adds padding as zeros at the end of its sums."""
        op, graph = self.graph.op, self.graph
        if self.layers.dtype != "float32":
            weights = op.Cast(weights, to=10)
        return op.Squeeze(op.MatMul(op.Unsqueeze(weights, graph.ints(1)), memory), graph.ints(1))

    def _cell(self, inputs: list[Value], recurrent: list[Value], hidden: Value) -> Value:
        """A GRU: from the gates' inputs (reset and update, new) to the next hidden state."""
        op = self.graph.op
        gates = op.Sigmoid(op.Add(inputs[0], recurrent[0]))
        reset, update = self.graph.split(gates, [self.config.hidden_dim] * 2)
        new = op.Tanh(op.Add(inputs[1], op.Mul(reset, recurrent[1])))
        return op.Add(new, op.Mul(update, op.Sub(hidden, new)))

    def _maxout(self, pairs: Value) -> Value:
        """The larger of each pair; first and second halves hold the pairs' members."""
        first, second = self.graph.split(pairs, [self.config.readout_dim] * 2)
        return self.graph.op.Max(first, second)

    def _project_hidden(self, hidden: Value) -> list[Value]:
        """The attention's query, and the recurrent parts of reset and update, and of new."""
        config, take = self.config, self.layers.weights.take
        dim, query_dim = config.hidden_dim, config.attention_dim
        query = take("attention.query.weight", query_dim, dim)
        gates = take("decoder.hidden.weight", 3 * dim, dim)
        bias = np.concatenate([np.zeros(query_dim), take("decoder.hidden.bias", 3 * dim)])
        joined = self.layers.project(hidden, "from_hidden", np.concatenate([query, gates]), bias)
        return self.graph.split(joined, [query_dim, 2 * dim, dim])

    def _project_token(self, embedded: Value) -> Value:
        dim, gates = self.config.embedding_dim, 3 * self.config.hidden_dim
        take = self.layers.weights.take
        weight = take("decoder.input.weight", gates, dim)
        bias = np.pad(take("decoder.input.bias", gates), (0, 2 * self.config.readout_dim))
        readout = self._readout_weight("readout.embedding", dim)
        return self.layers.project(embedded, "from_token", np.concatenate([weight, readout]), bias)

    def _project_context(self, context: Value) -> Value:
        take, gates = self.layers.weights.take, 3 * self.config.hidden_dim
        weight = take("decoder.context.weight", gates, self.memory_dim)
        readout = self._readout_weight("readout.context", self.memory_dim)
        return self.layers.project(context, "from_context", np.concatenate([weight, readout]))

    def _project_state(self, hidden: Value) -> Value:
        weight = self._readout_weight("readout.state", self.config.hidden_dim)
        bias = self.layers.weights.take("readout.state.bias", 2 * self.config.readout_dim)
        return self.layers.project(hidden, "readout.state", weight, _pairs_apart(bias))

    def _readout_weight(self, name: str, in_dim: int) -> Array:
        out_dim = 2 * self.config.readout_dim
        return _pairs_apart(self.layers.weights.take(f"{name}.weight", out_dim, in_dim))

    def _logits(self, readout: Value) -> Value:
        config, take = self.config, self.layers.weights.take
        name = "embedding" if config.tied_embeddings else "output"
        weight = take(f"{name}.weight", config.vocab_size, config.readout_dim)
        bias = take("output_bias", config.vocab_size)
        return self.layers.project(readout, name, weight, bias)


def _pairs_apart(rows: Array) -> Array:
    """Rows 0, 2, 4, ... before 1, 3, 5, ...: members of the maxout's pairs in two halves."""
    return np.concatenate([rows[0::2], rows[1::2]])
