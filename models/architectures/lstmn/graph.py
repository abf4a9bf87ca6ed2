"""Graphs of LSTMN, with both of its tapes.

The encoder writes its tape in a loop, position after position. The decoder's tape is a state that
each step appends to. Equations are those of Cheng et al. 2016, as in the torch module. Projections
of h~_t, gamma~_t and h_t for the next step's queries are part of the same matrix product, so that
states hold queries.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from export.graph.model import ExportedModel, Weights
from export.graph.writer import Array, Value
from export.layers.attention import (
    additive_scores,
    context_of,
    is_real,
    positions_from_zero,
    ragged_softmax,
)
from export.layers.basic import Layers
from export.layers.tape import Tape
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.lstmn.config import LstmnConfig
from models.layers.equations import lstm_memory, lstm_output
from serving.bundle.manifest import SOURCE, AttentionKind, Precision, StateKind, StateSpec

LONGEST = 2**31 - 1  # beyond the end of any source


def build(config: LstmnConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return FUSIONS[config.fusion].build(config, weights, precision)


class LstmnGraph(TranslatorGraph[LstmnConfig], ABC):
    """The base of both kinds of fusion with the source.

    token_parts, hidden_parts: further layers of the token, of attention_dim and hidden_dim, and of
    h_t, of attention_dim.
    """

    has_attentive_encoder = True
    token_parts: tuple[str, ...] = ()
    hidden_parts: tuple[str, ...] = ()

    def __init__(self, config: LstmnConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.dim, self.query_dim = config.hidden_dim, config.attention_dim
        self.words = recurrent_vocabulary(layers, config)
        constant, replace, query_dim = StateKind.CONSTANT, StateKind.REPLACE, self.query_dim
        value_dim = 2 * self.dim if config.fusion == "deep" else self.dim
        self.source_keys = layers.state("source_keys", constant, SOURCE, query_dim)
        self.source_values = layers.state("source_values", constant, SOURCE, value_dim)
        self.tape = Tape(layers, "tape", query_dim, 2 * self.dim)
        self.query = layers.state("query", replace, query_dim)
        self.source_query = layers.state("source_query", replace, query_dim)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        tape_states = (*self.tape.states, self.query, self.source_query)
        return (self.source_keys, self.source_values, *tape_states)

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write the source's tape. No position reads those after it, so none reads padding."""
        graph = self.graph
        values = self._write(self.words.embed_source(ids), ids, lengths)
        hidden_tape, _ = graph.split(values, [self.dim] * 2)
        keys = self.linear(hidden_tape, ["fusion.attention.key"], self.dim, [self.query_dim])
        graph.state_output(self.source_keys, keys)
        is_deep = self.config.fusion == "deep"
        stored_values = values if is_deep else graph.op.Identity(hidden_tape)
        graph.state_output(self.source_values, stored_values)

    def _write(self, embedded: Value, ids: Value, lengths: Value) -> Value:
        """Return the values of the encoder's tape: [batch, source, 2 * hidden_dim]."""
        graph, op = self.graph, self.graph.op
        sizes = [self.query_dim, 4 * self.dim]
        names = ["encoder.query_input", "encoder.gates_input"]
        joined = self.layers.linear(embedded, names, self.config.embedding_dim, sizes, bias=True)
        queries, gates = graph.split(joined, sizes)
        one, zeros = graph.constant(1, "int64"), None
        if self.attention_outputs.is_on:
            zeros = is_real(ids, lengths * 0).cast("float32")  # zeros [batch, source]
            columns = positions_from_zero(ids)[0]

        def write_iteration(
            iteration: Value, keys: Value, values: Value, recalled_query: Value
        ) -> list[Value]:
            position = iteration + one
            query = queries[:, position] + recalled_query
            recalled, weights = self._recall(query, keys, values)
            key, value, next_query = self._position(gates[:, position], recalled)
            longer = op.Concat(keys, key, axis=1), op.Concat(values, value, axis=1)
            if zeros is None:
                return [*longer, next_query]
            columns_of_weights = op.Concat(weights, zeros, axis=1)[:, columns]
            return [*longer, next_query, columns_of_weights.cast(self.layers.dtype)]

        first = gates[:, 0]
        half, _ = graph.split(first, [2 * self.dim] * 2)
        nothing = half * 0
        num_others = ids[:, 1:LONGEST].length(1)
        start = self._position(first, nothing)
        if zeros is None:
            return graph.loop(num_others, start, self.layers.dtype, write_iteration)[1]
        _, tape, _, columns_of_weights = graph.loop(
            num_others, start, self.layers.dtype, write_iteration, 1
        )
        self._put_encoder_attention(columns_of_weights, zeros, lengths)
        return tape

    def _put_encoder_attention(self, weights_before: Value, zeros: Value, lengths: Value) -> None:
        """Put out the weights of positions over those before, found [source - 1, batch, source].
        The first position has none.
        """
        weights_before = weights_before.cast("float32").transpose(1, 0, 2)
        both = self.graph.op.Concat(zeros.unsqueeze(1), weights_before, axis=1)
        within = is_real(zeros, lengths)
        weights = both.where(within.unsqueeze(1), 0)
        self.attention_outputs.put(AttentionKind.ENCODER, weights.unsqueeze(1))

    def _recall(self, query: Value, keys: Value, values: Value) -> tuple[Value, Value]:
        """Return [h~_t; c~_t] (4-6), and the weights. All rows' tapes are equally long."""
        score = "encoder.attention.score"
        scores = additive_scores(self.layers, query, keys, score, self.query_dim)
        weights = self.graph.op.Softmax(scores, axis=-1)
        return context_of(weights, values), weights

    def _position(self, x_gates: Value, recalled: Value) -> list[Value]:
        """Return key and value [batch, 1, ...] of one position for the tape, and W_h~ h~_t."""
        hidden, memory = self.graph.split(recalled, [self.dim] * 2)
        more_gates, recalled_query = self.recur(hidden, "encoder")
        hidden, memory = self.cell(x_gates + more_gates, memory)
        key = self.linear(hidden, ["encoder.attention.key"], self.dim, [self.query_dim])
        value = self.graph.op.Concat(hidden, memory, axis=1)
        return [key.unsqueeze(1), value.unsqueeze(1), recalled_query]

    def step(self) -> None:
        graph, op = self.graph, self.graph.op
        self.tape.open(graph.input("past_lengths", "int32", ()))
        query, gates, *source_inputs = self._project_token(self.words.embed_token(self.ids))
        gates, added, readout = self._fuse(gates, source_inputs)
        query = query + graph.state_input(self.query)
        recalled, weights = self.tape.read(query, "decoder.attention.score")
        if self.attention_outputs.is_on:
            attended = self.tape.weights_by_position(weights, self.attention_outputs.num_attended())
            self.attention_outputs.put(AttentionKind.DECODER, attended.unsqueeze(1, 2))
        recalled, memory = graph.split(recalled, [self.dim] * 2)
        more_gates, next_query = self.recur(recalled, "decoder")
        hidden, memory = self.cell(gates + more_gates, memory, added)
        key, more_readout = self._project_hidden(hidden)
        self.tape.append(key, op.Concat(hidden, memory, axis=1))
        graph.next_state(self.query, next_query)
        self.words.choose((readout + more_readout).tanh())
        self.put_cross_attention(self.weights)

    def linear(self, x: Value, names: Sequence[str], in_dim: int, out_dims: Sequence[int]) -> Value:
        return self.layers.linear(x, names, in_dim, out_dims, bias=False)

    def recur(self, recalled: Value, reader: str) -> list[Value]:
        """Return what h~_t adds to the gates (7), and W_h~ h~_t of the next query (4)."""
        names, sizes = [f"{reader}.gates_recalled", f"{reader}.query_recalled"], self._recurrent
        return self.graph.split(self.linear(recalled, names, self.dim, sizes), sizes)

    def cell(self, gates: Value, memory: Value, added: Value | None = None) -> tuple[Value, Value]:
        """Return h_t and c_t (8, 9), given the gates i, f, g, o and c~_t."""
        i, f, g, o = self.graph.split(gates, [self.dim] * 4)
        memory = lstm_memory(i, f, g, memory)
        return lstm_output(o, memory if added is None else memory + added)

    @property
    def _recurrent(self) -> list[int]:
        return [4 * self.dim, self.query_dim]

    @abstractmethod
    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, Value | None, Value]:
        """Return the gates, what is added to the memory, and the context's part of the readout."""

    def _attend(self, query: Value) -> Value:
        """Return what is read of the source's tape: [batch, value_dim]."""
        graph = self.graph
        keys, values = graph.state_input(self.source_keys), graph.state_input(self.source_values)
        lengths = graph.input("source_lengths", "int32", ())
        scores = additive_scores(self.layers, query, keys, "fusion.attention.score", self.query_dim)
        self.weights = ragged_softmax(scores, lengths)
        return context_of(self.weights, values)

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
        """Return h_t's key on the tape, and its part of the readout. Other parts become a state."""
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
        """The weight for [gamma~_t; h_t]."""
        return self.layers.weights.take("readout.weight", self.config.readout_dim, 2 * self.dim)


class ShallowLstmnGraph(LstmnGraph):
    """The context is one more input of the gates; h_t makes the next query."""

    hidden_parts = ("fusion.query",)

    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, None, Value]:
        context = self._attend(self.graph.state_input(self.source_query))
        more, readout = self._project_context(context, ["fusion.gates"], [4 * self.dim])
        return gates + more, None, readout


class DeepLstmnGraph(LstmnGraph):
    """A gate lets in what is read of the source's memories (11-15); the context makes the next
    query.
    """

    token_parts = ("fusion.query_input", "fusion.gate_input")

    def _fuse(self, gates: Value, source_inputs: list[Value]) -> tuple[Value, Value, Value]:
        graph = self.graph
        x_query, x_gate = source_inputs
        attended = self._attend(x_query + graph.state_input(self.source_query))
        context, memory = graph.split(attended, [self.dim] * 2)
        names, sizes = ["fusion.gate_context", "fusion.query_context"], [self.dim, self.query_dim]
        gate, next_query, readout = self._project_context(context, names, sizes)
        graph.next_state(self.source_query, next_query)
        return gates, (x_gate + gate).sigmoid() * memory, readout


FUSIONS: dict[str, type[LstmnGraph]] = {"shallow": ShallowLstmnGraph, "deep": DeepLstmnGraph}
