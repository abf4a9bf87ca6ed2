"""Graphs of Luong's encoder-decoder: stacked cells, global or local attention, input feeding.

Equations are those of Luong et al. 2015, as in the torch module.
"""

from itertools import chain

import numpy as np

from export.graph.writer import Array, Value
from export.layers.attention import (
    additive_scores,
    attend_to_states,
    context_of,
    is_real,
    one_hot_of_largest,
    positions_from_one,
    positions_from_zero,
    softmax_within,
)
from export.layers.basic import Layers
from export.layers.recurrent import (
    RecurrentLayers,
    State,
    advance,
    cell_states,
    cell_step,
    reverse_rows,
)
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.luong.config import LuongConfig
from models.configs.recurrent import Global, LocalM, LocalP
from models.layers.equations import CELLS, gaussian
from serving.bundle.manifest import SOURCE, StateKind, StateSpec

_SCORES = ("dot", "general", "scaled-dot", "concat", "location")


class LuongAttention:
    """Attention of one step. With global attention `attend_to_states` computes scores that are
    products or additive; other scores, and those of local attention, come from `_scores`.
    """

    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        assert config.score in _SCORES, f"there is no graph of the score {config.score!r}"
        self.config, self.layers, self.graph = config, layers, layers.graph

    @property
    def hidden_parts(self) -> list[str]:
        """Names of further layers of h_t, each as large: W_a's half for it (concat), W_p
        (local-p).
        """
        parts = []
        if self.config.score == "concat":
            parts.append("attention.score.query")
        if isinstance(self.config.attention, LocalP):
            parts.append("attention.center_hidden")
        return parts

    def attend(
        self, hidden: Value, keys: Value, memory: Value, parts: dict[str, Value]
    ) -> tuple[Value, Value]:
        """Return a_t f32 [batch, source] and c_t, given h_t and its `hidden_parts`."""
        config, lengths = self.config, self.graph.input("source_lengths", "int32", ())
        if isinstance(config.attention, Global) and config.score != "location":
            is_additive = config.score == "concat"
            weights, context = attend_to_states(
                self.layers,
                parts["attention.score.query"] if is_additive else hidden,
                keys,
                memory,
                lengths,
                config.hidden_dim,
                "attention.score.score" if is_additive else None,
                config.hidden_dim**-0.5 if config.score == "scaled-dot" else 1.0,
            )
            if not config.hard_attention:
                return weights, context
        else:
            weights = self._align(hidden, keys, lengths, parts)
        weights = one_hot_of_largest(weights) if config.hard_attention else weights
        return weights, context_of(weights, memory)

    def _align(self, hidden: Value, keys: Value, lengths: Value, parts: dict[str, Value]) -> Value:
        scores = self._scores(hidden, keys, parts)
        within = is_real(scores, lengths)
        attention = self.config.attention
        if isinstance(attention, Global):
            return softmax_within(scores, within)
        distances = self._distances(scores, lengths, parts)
        window = self.graph.constant(attention.window, "float32")
        weights = softmax_within(scores, within & (distances.abs() <= window))
        is_monotonic = isinstance(attention, LocalM)
        return weights if is_monotonic else weights * gaussian(distances, attention.window)

    def _scores(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        """Return scores (3.1). Products are summed position by position, as a matrix product's
        order may depend on how many there are.
        """
        dim = self.config.hidden_dim
        if self.config.score == "location":
            return self._scores_of_places(hidden, keys[:, :, 0])
        if self.config.score == "concat":
            query, name = parts["attention.score.query"], "attention.score.score"
            return additive_scores(self.layers, query, keys, name, dim)
        scores = self.layers.dot(hidden.unsqueeze(1), keys, dim)
        return scores * dim**-0.5 if self.config.score == "scaled-dot" else scores

    def _scores_of_places(self, hidden: Value, like: Value) -> Value:
        """Return scores by position (8), as many as ``like`` [batch, source] has."""
        dim, longest = self.config.hidden_dim, self.config.max_source_tokens
        name = "attention.score.place"
        scores = self.layers.linear(hidden, [name], dim, [longest], bias=False).cast("float32")
        within = positions_from_zero(like).minimum(
            longest - 1
        )  # what is in the padding may be beyond them
        return self.graph.op.GatherElements(scores, within, axis=1)

    def _distances(self, scores: Value, lengths: Value, parts: dict[str, Value]) -> Value:
        """Return s - p_t f32 [batch, source]; s counts from 1."""
        positions = positions_from_one(scores).cast("float32")
        if isinstance(self.config.attention, LocalM):
            times = self.graph.input("total_lengths", "int32", ())
            centers = times.minimum(lengths).cast("float32")
        else:
            inner = parts["attention.center_hidden"].tanh()
            centers = self._center(inner).sigmoid() * lengths.cast("float32")  # (9)
        return positions - centers.unsqueeze(1)

    def _center(self, inner: Value) -> Value:
        """Return v_p . inner: f32 [batch]."""
        name, dim = "attention.center.weight", self.config.hidden_dim
        vector = self.layers.float_weight(name, self.layers.weights.take(name, 1, dim)[0])
        return self.layers.dot(inner, vector, dim)


class LuongBridge:
    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    def begin(self, last: list[State]) -> list[State]:
        """Return the first states of the decoder's layers, given the encoder's last ones of every
        layer and direction.
        """
        kind = self.config.imported.bridge
        if kind == "relu":
            last = self._relu(last)
        states = self._join_directions(last)
        if kind in ("none", "relu"):
            return states
        if kind == "linear":
            return [self._linear(state) for state in states]
        start = self._start(states[-1][0])
        return [self._copies(start) for _ in range(self.config.num_layers)]

    def _relu(self, last: list[State]) -> list[State]:
        """Map all layers of a direction together."""
        op, dim = self.graph.op, self.config.hidden_dim // self.config.num_directions
        size = dim * self.config.num_layers
        bridged = []
        for part, states in enumerate(zip(*last, strict=True)):
            joined = op.Concat(*states, axis=-1).reshape(0, -1, size)
            linear = self.layers.linear(joined, [f"bridge.parts.{part}"], size, [size], bias=True)
            flat = linear.relu().reshape(0, -1)
            bridged.append(self.graph.split(flat, [dim] * len(last)))
        return list(zip(*bridged, strict=True))

    def _join_directions(self, last: list[State]) -> list[State]:
        """Put the directions of each layer side by side."""
        num = self.config.num_directions
        if num == 1:
            return last
        layers = [last[i : i + num] for i in range(0, len(last), num)]
        return [
            tuple(self.graph.op.Concat(*parts, axis=-1) for parts in zip(*layer, strict=True))
            for layer in layers
        ]

    def _linear(self, state: State) -> State:
        return tuple(self._map(part, number) for number, part in enumerate(state))

    def _map(self, x: Value, part: int) -> Value:
        sizes = self.config.encoder_dim, [self.config.hidden_dim]
        return self.layers.linear(x, [f"bridge.parts.{part}"], *sizes, bias=True)

    def _start(self, top: Value) -> Value:
        """Return a first state [batch, hidden_dim], given the top layer's last output."""
        dim = self.config.hidden_dim
        if self.config.imported.bridge == "tanh":
            return self._map(top, 0).tanh()
        if self.config.imported.bridge == "top":
            return top[:, :dim]
        one = top[:, :1]
        return self.graph.constant(np.zeros((1, dim)), top.dtype) + (one - one)

    def _copies(self, start: Value) -> State:
        """Return a separate output for each state."""
        num = CELLS[self.config.cell].num_states
        return tuple(self.graph.op.Identity(start) for _ in range(num))


class LuongGraph(TranslatorGraph[LuongConfig]):
    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.dim = config.hidden_dim
        self.words = recurrent_vocabulary(layers, config)
        self.memory = layers.state("memory", StateKind.CONSTANT, SOURCE, config.encoder_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, SOURCE, self.dim)
        self.has_keys = config.score in ("general", "concat")  # else they are the memory
        self.cells = cell_states(config.cell, self.dim, layers.dtype, config.num_layers)
        self.fed = layers.state("readout", StateKind.REPLACE, config.readout_dim)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        keys = (self.keys,) if self.has_keys else ()
        fed = (self.fed,) if self.config.input_feeding else ()
        return (self.memory, *keys, *chain(*self.cells), *fed)

    def encode(self, ids: Value, lengths: Value) -> None:
        graph, config = self.graph, self.config
        dim = config.encoder_dim // config.num_directions
        sizes = config.embedding_dim, dim, config.layers_of_encoder
        is_bidirectional = config.imported.bidirectional
        encoder = RecurrentLayers(
            self.layers, "encoder", config.cell, *sizes, bidirectional=is_bidirectional
        )
        ids = reverse_rows(ids, lengths) if config.reversed_source else ids
        memory, last = encoder.encode(self.words.embed_source(ids), lengths)
        if config.reversed_source:
            floats = memory.cast(self.layers.target.common_dtype)
            memory = reverse_rows(floats, lengths).cast(memory.dtype)
        graph.state_output(self.memory, memory)
        if self.has_keys:
            name = "attention.score.key"
            keys = self.layers.linear(memory, [name], config.encoder_dim, [self.dim], bias=False)
            graph.state_output(self.keys, keys)
        first = LuongBridge(config, self.layers).begin(last)
        for state, value in zip(chain(*self.cells), chain(*first), strict=True):
            graph.state_output(state, value)

    def step(self) -> None:
        """Write h_t, a_t, c_t and h~_t = tanh(W_c [c_t; h_t]) (5)."""
        graph = self.graph
        hidden = self._advance(self.words.embed_token(self.ids))
        memory = graph.state_input(self.memory)
        keys = graph.state_input(self.keys) if self.has_keys else memory
        attention = LuongAttention(self.config, self.layers)
        readout, parts = self._project_hidden(hidden, attention.hidden_parts)
        weights, context = attention.attend(hidden, keys, memory, parts)
        readout = readout + self._project_context(context)
        if self.config.imported.readout == "tanh":
            readout = readout.tanh()
        if self.config.input_feeding:
            graph.next_state(self.fed, readout)
        self.words.choose(readout)
        self.put_cross_attention(weights)

    def _advance(self, embedded: Value) -> Value:
        """Read one token in all layers. Return the top layer's output h_t [batch, hidden_dim]."""
        x, in_dim = embedded, self.config.embedding_dim
        for layer, states in enumerate(self.cells):
            name = f"decoder.layers.{layer}"
            gates = self._gates(x, f"{name}.input", in_dim, bias=True)
            if layer == 0 and self.config.input_feeding:
                fed, fed_dim = self.graph.state_input(self.fed), self.config.readout_dim
                gates = gates + self._gates(fed, f"{name}.context", fed_dim, bias=False)
            step = cell_step(self.layers, self.config.cell, f"{name}.hidden", self.dim)
            x = advance(self.layers, step, gates, states)
            in_dim = self.dim
        return x

    def _gates(self, x: Value, name: str, in_dim: int, *, bias: bool) -> Value:
        out_dims = [CELLS[self.config.cell].num_gates * self.dim]
        return self.layers.linear(x, [name], in_dim, out_dims, bias=bias)

    def _project_hidden(self, hidden: Value, names: list[str]) -> tuple[Value, dict[str, Value]]:
        """Multiply h_t by its half of W_c, and by the layers `names`."""
        take, dim, readout_dim = self.layers.weights.take, self.dim, self.config.readout_dim
        weights = [self._readout_weight[:, self.config.encoder_dim :]]
        weights += [take(f"{name}.weight", dim, dim) for name in names]
        bias = self._hidden_bias(names) if self.config.imported.biases else None
        joined = self.layers.project(hidden, "from_hidden", np.concatenate(weights), bias)
        readout, *parts = self.graph.split(joined, [readout_dim] + [dim] * len(names))
        return readout, dict(zip(names, parts, strict=True))

    def _hidden_bias(self, names: list[str]) -> Array:
        """Join the biases of the readout and of the layers `names`, of which only the score's has
        one.
        """
        take, dim = self.layers.weights.take, self.dim
        biases = [take("readout.bias", self.config.readout_dim)]
        for name in names:
            has_bias = name == "attention.score.query"
            biases.append(take(f"{name}.bias", dim) if has_bias else np.zeros(dim, np.float32))
        return np.concatenate(biases)

    def _project_context(self, context: Value) -> Value:
        weight = self._readout_weight[:, : self.config.encoder_dim]
        return self.layers.project(context, "from_context", weight)

    @property
    def _readout_weight(self) -> Array:
        """W_c, for [c_t; h_t]."""
        sizes = self.config.readout_dim, self.config.encoder_dim + self.dim
        return self.layers.weights.take("readout.weight", *sizes)


build = LuongGraph.build
