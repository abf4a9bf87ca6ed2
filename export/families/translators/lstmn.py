"""LSTMN: both of its tapes as graphs.

The encoder writes its tape position after position in a loop; the decoder's is a state that each
step appends to. Equations are those of Cheng et al. 2016, as in the torch module. What a step makes
of h~_t, gamma~_t or h_t for the next step's queries goes along in the same matrix product, so that
states hold queries.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import Array, GraphWriter, Value
from export.layers.additive import additive_scores, mix
from export.layers.attention import is_real, ragged_softmax
from export.layers.basic import Layers
from export.layers.tape import Tape
from export.layers.vocabulary import Vocabulary
from models.configs.translators.lstmn import LstmnConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec

LONGEST = 2**31 - 1  # beyond the end of any source


def build(config: LstmnConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Encode(config, Layers(GraphWriter("encode"), weights, precision))
    step, step_attention = (
        STEPS[config.fusion](config, Layers(GraphWriter(name), weights, precision))
        for name in ("step", "step_attention")
    )
    encode.build()
    step.build()
    step_attention.build(with_attention=True)
    return translation_model(
        config,
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=step.states,
        alignment_heads=(0,),
    )


class _Part:
    """What the graphs share: states, sizes and the LSTM's equations."""

    def __init__(self, config: LstmnConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.dim, self.query_dim = config.hidden_dim, config.attention_dim
        self.words, self.is_deep = Vocabulary(config, layers), config.fusion == "deep"
        constant, dtype = StateKind.CONSTANT, layers.dtype
        value_dim = 2 * self.dim if self.is_deep else self.dim
        self.source_keys = StateSpec("source_keys", constant, (SOURCE, self.query_dim), dtype)
        self.source_values = StateSpec("source_values", constant, (SOURCE, value_dim), dtype)

    def linear(self, x: Value, names: Sequence[str], in_dim: int, out_dims: Sequence[int]) -> Value:
        return self.layers.linear(x, names, in_dim, out_dims, bias=False)

    def recur(self, recalled: Value, reader: str) -> list[Value]:
        """What h~_t adds to the gates (7), and W_h~ h~_t of the next query (4)."""
        names, sizes = [f"{reader}.gates_recalled", f"{reader}.query_recalled"], self._recurrent
        return self.graph.split(self.linear(recalled, names, self.dim, sizes), sizes)

    def cell(self, gates: Value, memory: Value, added: Value | None = None) -> tuple[Value, Value]:
        """h_t and c_t (8, 9) of gates in the order input, forget, new, output, and c~_t."""
        op = self.graph.op
        enter, keep, new, leave = self.graph.split(gates, [self.dim] * 4)
        fresh = op.Mul(op.Sigmoid(enter), op.Tanh(new))
        memory = op.Add(op.Mul(op.Sigmoid(keep), memory), fresh)
        if added is not None:
            memory = op.Add(memory, added)
        return op.Mul(op.Sigmoid(leave), op.Tanh(memory)), memory

    @property
    def _recurrent(self) -> list[int]:
        return [4 * self.dim, self.query_dim]


class _Encode(_Part):
    def build(self) -> None:
        """No position reads those after it, so none reads padding."""
        graph, op = self.graph, self.graph.op
        ids, _ = source_inputs(graph)
        values = self._write(self.words.embed_source(ids), ids)
        hidden_tape, _ = graph.split(values, [self.dim] * 2)
        keys = self.linear(hidden_tape, ["fusion.attention.key"], self.dim, [self.query_dim])
        graph.state_output(self.source_keys, keys)
        graph.state_output(self.source_values, values if self.is_deep else op.Identity(hidden_tape))

    def _write(self, embedded: Value, ids: Value) -> Value:
        """The values of the encoder's tape: [batch, source, 2 * hidden_dim]."""
        graph, op = self.graph, self.graph.op
        sizes = [self.query_dim, 4 * self.dim]
        names = ["encoder.query_input", "encoder.gates_input"]
        joined = self.layers.linear(embedded, names, self.config.embedding_dim, sizes, bias=True)
        queries, gates = graph.split(joined, sizes)
        one = graph.constant(1, "int64")

        def body(turn: Value, keys: Value, values: Value, recalled_query: Value) -> list[Value]:
            position = op.Add(turn, one)
            query = op.Add(op.Gather(queries, position, axis=1), recalled_query)
            mixed = self._recall(query, keys, values)
            new = self._position(op.Gather(gates, position, axis=1), mixed)
            longer = (
                op.Concat(*pair, axis=1) for pair in zip((keys, values), new[:2], strict=True)
            )
            return [*longer, new[2]]

        first = op.Gather(gates, graph.constant(0, "int64"), axis=1)
        half, _ = graph.split(first, [2 * self.dim] * 2)
        nothing = op.Mul(half, graph.constant(0, self.layers.dtype))
        others = op.Slice(ids, graph.ints(1), graph.ints(LONGEST), graph.ints(1))
        num_others = op.Shape(others, start=1, end=2)
        start = self._position(first, nothing)
        return graph.loop(num_others, start, self.layers.dtype, body)[1]

    def _recall(self, query: Value, keys: Value, values: Value) -> Value:
        """[h~_t; c~_t] (4-6). All rows' tapes are equally long."""
        score = "encoder.attention.score"
        scores = additive_scores(self.layers, query, keys, score, self.query_dim)
        return mix(self.layers, self.graph.op.Softmax(scores, axis=-1), values)

    def _position(self, x_gates: Value, mixed: Value) -> list[Value]:
        """Key and values [batch, 1, ...] of one position for the tape, and W_h~ h~_t."""
        graph, op = self.graph, self.graph.op
        recalled, memory = graph.split(mixed, [self.dim] * 2)
        more_gates, recalled_query = self.recur(recalled, "encoder")
        hidden, memory = self.cell(op.Add(x_gates, more_gates), memory)
        key = self.linear(hidden, ["encoder.attention.key"], self.dim, [self.query_dim])
        new = (key, op.Concat(hidden, memory, axis=1))
        return [*(op.Unsqueeze(each, graph.ints(1)) for each in new), recalled_query]


class _Step(_Part, ABC):
    """Subclasses say how the source gets in."""

    token_parts: tuple[str, ...] = ()  # what else the token feeds: of attention_dim, hidden_dim
    hidden_parts: tuple[str, ...] = ()  # what else h_t feeds: of attention_dim

    def __init__(self, config: LstmnConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.tape = Tape(layers, "tape", self.query_dim, 2 * self.dim)
        self.query, self.source_query = (
            StateSpec(name, StateKind.REPLACE, (self.query_dim,), layers.dtype)
            for name in ("query", "source_query")
        )
        own = (*self.tape.states, self.query, self.source_query)
        self.states = (self.source_keys, self.source_values, *own)

    def build(self, with_attention: bool = False) -> None:
        graph, op = self.graph, self.graph.op
        ids = graph.input("ids", "int64", (1,))
        self.tape.open(graph.input("past_lengths", "int32", ()))
        query, gates, *source_inputs = self._project_token(self.words.embed_token(ids))
        gates, added, readout = self._fuse(gates, source_inputs)
        query = op.Add(query, graph.state_input(self.query))
        mixed, _ = self.tape.read(query, "decoder.attention.score")
        recalled, memory = graph.split(mixed, [self.dim] * 2)
        more_gates, next_query = self.recur(recalled, "decoder")
        hidden, memory = self.cell(op.Add(gates, more_gates), memory, added)
        key, more_readout = self._project_hidden(hidden)
        self.tape.append(key, op.Concat(hidden, memory, axis=1))
        graph.next_state(self.query, next_query)
        self.words.choose(op.Tanh(op.Add(readout, more_readout)))
        if with_attention:
            one_head = op.Unsqueeze(self.weights, graph.ints(1))
            graph.output("attention", one_head, "float32", (1, SOURCE))

    @abstractmethod
    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, Value | None, Value]:
        """The gates, what enters the memory, and the context's part of the readout."""

    def _attend(self, query: Value) -> Value:
        """What the source's tape holds, mixed: [batch, value_dim]."""
        graph = self.graph
        keys, values = graph.state_input(self.source_keys), graph.state_input(self.source_values)
        lengths = graph.input("source_lengths", "int32", ())
        scores = additive_scores(self.layers, query, keys, "fusion.attention.score", self.query_dim)
        self.weights = ragged_softmax(graph, scores, is_real(graph, scores, lengths))
        return mix(self.layers, self.weights, values)

    def _project_token(self, embedded: Value) -> list[Value]:
        names = ["decoder.query_input", "decoder.gates_input", *self.token_parts]
        sizes = [self.query_dim, 4 * self.dim, self.query_dim, self.dim][: len(names)]
        joined = self.layers.linear(embedded, names, self.config.embedding_dim, sizes, bias=True)
        return self.graph.split(joined, sizes)

    def _project_context(self, context: Value, names: list[str], sizes: list[int]) -> list[Value]:
        weights = self._weights(names, sizes)
        weights.append(self._readout_weight[:, : self.dim])
        bias = self.layers.weights.take("readout.bias", self.config.readout_dim)
        bias = np.pad(bias, (sum(sizes), 0))
        joined = self.layers.project(context, "from_context", np.concatenate(weights), bias)
        return self.graph.split(joined, [*sizes, self.config.readout_dim])

    def _project_hidden(self, hidden: Value) -> list[Value]:
        """h_t's key on the tape, and its part of the readout; what more it feeds is a state."""
        names = ["decoder.attention.key", *self.hidden_parts]
        sizes = [self.query_dim] * len(names)
        weights = [*self._weights(names, sizes), self._readout_weight[:, self.dim :]]
        joined = self.layers.project(hidden, "from_hidden", np.concatenate(weights))
        key, *source_query, readout = self.graph.split(joined, [*sizes, self.config.readout_dim])
        for query in source_query:
            self.graph.next_state(self.source_query, query)
        return [key, readout]

    def _weights(self, names: list[str], sizes: list[int]) -> list[Array]:
        take = self.layers.weights.take
        return [
            take(f"{name}.weight", size, self.dim) for name, size in zip(names, sizes, strict=True)
        ]

    @property
    def _readout_weight(self) -> Array:
        """Of [gamma~_t; h_t]."""
        return self.layers.weights.take("readout.weight", self.config.readout_dim, 2 * self.dim)


class _ShallowStep(_Step):
    """The context is one more input of the gates; h_t makes the next query."""

    hidden_parts = ("fusion.query",)

    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, None, Value]:
        context = self._attend(self.graph.state_input(self.source_query))
        more, readout = self._project_context(context, ["fusion.gates"], [4 * self.dim])
        return self.graph.op.Add(gates, more), None, readout


class _DeepStep(_Step):
    """What is read of the source's memories enters by a gate (11-15); so does the next query."""

    token_parts = ("fusion.query_input", "fusion.gate_input")

    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, Value, Value]:
        graph, op = self.graph, self.graph.op
        x_query, x_gate = source_inputs
        mixed = self._attend(op.Add(x_query, graph.state_input(self.source_query)))
        context, memory = graph.split(mixed, [self.dim] * 2)
        names, sizes = ["fusion.gate_context", "fusion.query_context"], [self.dim, self.query_dim]
        gate, next_query, readout = self._project_context(context, names, sizes)
        graph.next_state(self.source_query, next_query)
        return gates, op.Mul(op.Sigmoid(op.Add(x_gate, gate)), memory), readout


STEPS: dict[str, type[_Step]] = {"shallow": _ShallowStep, "deep": _DeepStep}
