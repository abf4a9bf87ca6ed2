"""Builds Luong's encoder-decoder: stacked cells, global or local attention, input feeding.

Equations are those of Luong et al. 2015, as in `models.architectures.translators.luong`.
"""

from itertools import chain

import numpy as np

from export.families.translators.luong.attention import LuongAttention
from export.families.translators.luong.bridges import LuongBridge
from export.families.translators.translation import TranslatorGraph
from export.graph.value import Value
from export.graph.writer import Array
from export.layers.additive import context_of
from export.layers.basic import Layers
from export.layers.recurrent.cells import advance, cell_states, cell_step
from export.layers.recurrent.recurrent import RecurrentLayers, reverse_rows
from export.layers.vocabulary import recurrent_vocabulary
from models.configs.translators.luong import LuongConfig
from models.layers.equations import CELLS
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


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
        weights = attention.weights(hidden, keys, parts)
        readout = readout + self._project_context(context_of(weights, memory))
        if self.config.imported.readout == "tanh":
            readout = readout.tanh()
        if self.config.input_feeding:
            graph.next_state(self.fed, readout)
        self.words.choose(readout)
        self.tell(weights)

    def _advance(self, embedded: Value) -> Value:
        """Go one token further in all layers: the top one's output h_t [batch, hidden_dim]."""
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
        """Join those of the readout and of the layers `names`; only the score's has one."""
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
        """Take W_c, of [c_t; h_t]."""
        sizes = self.config.readout_dim, self.config.encoder_dim + self.dim
        return self.layers.weights.take("readout.weight", *sizes)
