"""Luong's encoder-decoder as graphs: stacked cells, global or local attention, input feeding.

Equations are those of Luong et al. 2015, as in `models.architectures.translators.luong`.
"""

from itertools import chain

import numpy as np

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import Array, GraphWriter, Value
from export.layers.additive import additive_scores, mix
from export.layers.attention import count, is_real, ragged_softmax
from export.layers.basic import Layers
from export.layers.cells import STEPS, State, advance, cell_states, cell_step
from export.layers.recurrent import RecurrentLayers
from export.layers.vocabulary import Vocabulary
from models.configs.translators.luong import LuongConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: LuongConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Encode(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Step(config, Layers(GraphWriter("step"), weights, precision))
    step_attention = _Step(config, Layers(GraphWriter("step_attention"), weights, precision))
    encode.build()
    step.build()
    step_attention.build(with_attention=True)
    return translation_model(
        config,
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=step.states,
        alignment_heads=(0,),
    )


class _Attention:
    """Scores, weights and contexts in the step graph."""

    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    @property
    def hidden_parts(self) -> list[str]:
        """Layers of h_t, each as large: W_a's half that reads it (concat), W_p (local-p)."""
        parts = []
        if self.config.score == "concat":
            parts.append("attention.score.query")
        if self.config.attention == "local-p":
            parts.append("attention.center_hidden")
        return parts

    def weigh(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        """a_t f32 [batch, source] of h_t and what `hidden_parts` make of it."""
        graph = self.graph
        lengths = graph.input("source_lengths", "int32", ())
        scores = self._scores(hidden, keys, parts)
        within = is_real(graph, scores, lengths)
        if self.config.window is None:
            return ragged_softmax(graph, scores, within)
        distances = self._distances(scores, lengths, parts)
        window = graph.constant(self.config.window, "float32")
        within = graph.op.And(within, graph.op.LessOrEqual(graph.op.Abs(distances), window))
        weights = ragged_softmax(graph, scores, within)
        return weights if self.config.attention == "local-m" else self._favour(weights, distances)

    def _scores(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        """3.1; products are summed position by position, as a matrix product's order may depend on
        how many there are.
        """
        op, graph, dim = self.graph.op, self.graph, self.config.hidden_dim
        if self.config.score == "concat":
            query, name = parts["attention.score.query"], "attention.score.score"
            return additive_scores(self.layers, query, keys, name, dim)
        products = op.Mul(op.Unsqueeze(hidden, graph.ints(1)), keys)
        return self._in_float(self.layers.sum_features(products, dim))

    def _distances(self, scores: Value, lengths: Value, parts: dict[str, Value]) -> Value:
        """s - p_t f32 [batch, source]; s counts from 1."""
        op, graph = self.graph.op, self.graph
        positions = op.Cast(count(graph, scores), to=1)
        if self.config.attention == "local-m":
            times = graph.input("total_lengths", "int32", ())
            centers = op.Cast(op.Min(times, lengths), to=1)
        else:
            inner = op.Tanh(parts["attention.center_hidden"])
            centers = op.Mul(op.Sigmoid(self._center(inner)), op.Cast(lengths, to=1))  # (9)
        return op.Sub(positions, op.Unsqueeze(centers, graph.ints(1)))

    def _center(self, inner: Value) -> Value:
        """v_p . inner: f32 [batch]."""
        name, dim = "attention.center.weight", self.config.hidden_dim
        vector = self.layers.float_weight(name, self.layers.weights.take(name, 1, dim)[0])
        product = self.graph.op.Mul(inner, vector)
        return self._in_float(self.layers.sum_features(product, dim))

    def _favour(self, weights: Value, distances: Value) -> Value:
        """Times a Gaussian of deviation window / 2 (10)."""
        op, graph = self.graph.op, self.graph
        assert self.config.window is not None
        scale = graph.constant(-2 / self.config.window**2, "float32")
        return op.Mul(weights, op.Exp(op.Mul(op.Mul(distances, distances), scale)))

    def _in_float(self, x: Value) -> Value:
        return x if self.layers.dtype == "float32" else self.graph.op.Cast(x, to=1)


class _Part:
    """What the graphs share: the states, and words."""

    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.dim, dtype = config.hidden_dim, layers.dtype
        self.words = Vocabulary(config, layers)
        self.memory = StateSpec("memory", StateKind.CONSTANT, (SOURCE, self.dim), dtype)
        self.keys = StateSpec("keys", StateKind.CONSTANT, (SOURCE, self.dim), dtype)
        self.has_keys = config.score != "dot"  # there they are the memory
        self.cells = cell_states(config.cell, self.dim, dtype, config.num_layers)
        self.fed = StateSpec("readout", StateKind.REPLACE, (config.readout_dim,), dtype)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        keys = (self.keys,) if self.has_keys else ()
        fed = (self.fed,) if self.config.input_feeding else ()
        return (self.memory, *keys, *chain(*self.cells), *fed)


class _Encode(_Part):
    def build(self) -> None:
        graph, config = self.graph, self.config
        ids, lengths = source_inputs(graph)
        sizes = config.embedding_dim, self.dim // config.num_directions, config.num_layers
        is_bidirectional = config.bidirectional
        encoder = RecurrentLayers(
            self.layers, "encoder", config.cell, *sizes, bidirectional=is_bidirectional
        )
        memory, last = encoder.encode(self.words.embed_source(ids), lengths)
        graph.state_output(self.memory, memory)
        if self.has_keys:
            name = "attention.score.key"
            keys = self.layers.linear(memory, [name], self.dim, [self.dim], bias=False)
            graph.state_output(self.keys, keys)
        first = self._join_directions(self._bridge(last) if config.bridge else last)
        for state, value in zip(chain(*self.cells), chain(*first), strict=True):
            graph.state_output(state, value)

    def _bridge(self, last: list[State]) -> list[State]:
        """`models.architectures.translators.luong.Bridge`."""
        op, graph = self.graph.op, self.graph
        dim = self.dim // self.config.num_directions * self.config.num_layers
        bridged = []
        for part, each in enumerate(zip(*last, strict=True)):
            joined = op.Reshape(op.Concat(*each, axis=-1), graph.ints(0, -1, dim))
            linear = self.layers.linear(joined, [f"bridge.parts.{part}"], dim, [dim], bias=True)
            flat = op.Reshape(op.Relu(linear), graph.ints(0, -1))
            bridged.append(graph.split(flat, [self.dim // self.config.num_directions] * len(last)))
        return list(zip(*bridged, strict=True))

    def _join_directions(self, last: list[State]) -> list[State]:
        """Of each layer and direction -> of each layer, the directions side by side."""
        num = self.config.num_directions
        if num == 1:
            return last
        layers = [last[i : i + num] for i in range(0, len(last), num)]
        return [
            tuple(self.graph.op.Concat(*parts, axis=-1) for parts in zip(*layer, strict=True))
            for layer in layers
        ]


class _Step(_Part):
    def build(self, with_attention: bool = False) -> None:
        graph, op = self.graph, self.graph.op
        hidden = self._advance(self.words.embed_token(graph.input("ids", "int64", (1,))))
        memory = graph.state_input(self.memory)
        keys = graph.state_input(self.keys) if self.has_keys else memory
        attention = _Attention(self.config, self.layers)
        readout, parts = self._project_hidden(hidden, attention.hidden_parts)
        weights = attention.weigh(hidden, keys, parts)
        context = mix(self.layers, weights, memory)
        readout = op.Add(readout, self._project_context(context))
        if self.config.readout == "tanh":
            readout = op.Tanh(readout)  # (5)
        if self.config.input_feeding:
            graph.next_state(self.fed, readout)
        self.words.choose(readout)
        if with_attention:
            one_head = op.Unsqueeze(weights, graph.ints(1))
            graph.output("attention", one_head, "float32", (1, SOURCE))

    def _advance(self, embedded: Value) -> Value:
        """One token further in all layers: the top one's output h_t [batch, hidden_dim]."""
        x, in_dim = embedded, self.config.embedding_dim
        for layer, states in enumerate(self.cells):
            name = f"decoder.layers.{layer}"
            gates = self._gates(x, f"{name}.input", in_dim, bias=True)
            if layer == 0 and self.config.input_feeding:
                fed, fed_dim = self.graph.state_input(self.fed), self.config.readout_dim
                more = self._gates(fed, f"{name}.context", fed_dim, bias=False)
                gates = self.graph.op.Add(gates, more)
            step = cell_step(self.layers, self.config.cell, f"{name}.hidden", self.dim)
            x = advance(self.layers, step, gates, states)
            in_dim = self.dim
        return x

    def _gates(self, x: Value, name: str, in_dim: int, *, bias: bool) -> Value:
        out_dims = [STEPS[self.config.cell].num_gates * self.dim]
        return self.layers.linear(x, [name], in_dim, out_dims, bias=bias)

    def _project_hidden(self, hidden: Value, names: list[str]) -> tuple[Value, dict[str, Value]]:
        """h_t's half of W_c, and the layers `names` of it."""
        take, dim, readout_dim = self.layers.weights.take, self.dim, self.config.readout_dim
        weights = [self._readout_weight[:, dim:]]
        weights += [take(f"{name}.weight", dim, dim) for name in names]
        bias = self._hidden_bias(names) if self.config.biases else None
        joined = self.layers.project(hidden, "from_hidden", np.concatenate(weights), bias)
        readout, *parts = self.graph.split(joined, [readout_dim] + [dim] * len(names))
        return readout, dict(zip(names, parts, strict=True))

    def _hidden_bias(self, names: list[str]) -> Array:
        """Of the readout and of the layers `names`; only the score's has one."""
        take, dim = self.layers.weights.take, self.dim
        biases = [take("readout.bias", self.config.readout_dim)]
        for name in names:
            has_bias = name == "attention.score.query"
            biases.append(take(f"{name}.bias", dim) if has_bias else np.zeros(dim, np.float32))
        return np.concatenate(biases)

    def _project_context(self, context: Value) -> Value:
        return self.layers.project(context, "from_context", self._readout_weight[:, : self.dim])

    @property
    def _readout_weight(self) -> Array:
        """W_c, of [c_t; h_t]."""
        return self.layers.weights.take("readout.weight", self.config.readout_dim, 2 * self.dim)
