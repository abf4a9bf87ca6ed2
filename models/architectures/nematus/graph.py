"""Graphs of Nematus: several cells at each word, and attention between two of them.

Equations are those of `models.architectures.nematus.module`.
"""

from collections.abc import Sequence
from itertools import chain

from export.graph.writer import Value
from export.layers.attention import attend_to_states, context_of, is_real
from export.layers.basic import Layers
from export.layers.recurrent import State, cell_states, read_states, reverse_rows, write_states
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.nematus.config import NematusConfig
from models.layers.equations import CELLS
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


class NormedLayers:
    """Linear layers, the pieces of whose outputs are normalised separately."""

    def __init__(self, config: NematusConfig, layers: Layers) -> None:
        self.config, self.layers = config, layers

    def linear(self, x: Value, name: str, in_dim: int, sizes: Sequence[int]) -> Value:
        """Map [..., in_dim] to [..., sum(sizes)]."""
        y = self.layers.linear(x, [f"{name}.linear"], in_dim, [sum(sizes)], bias=True)
        epsilon = self.config.epsilon
        if epsilon is None:
            return y
        normed = [
            self.layers.layer_norm(piece, f"{name}.norms.{n}", size, epsilon)
            for n, (piece, size) in enumerate(
                zip(self.layers.graph.split(y, sizes), sizes, strict=True)
            )
        ]
        joined: Value = self.layers.op.Concat(*normed, axis=-1) if len(normed) > 1 else normed[0]
        return joined


class TransitionCellGraph:
    """The cell `name`. Without an input it has a bias in place of the input's part."""

    def __init__(self, normed: NormedLayers, name: str) -> None:
        config = normed.config
        self._normed, self._name, self._dim = normed, name, config.hidden_dim
        self._kind = CELLS[config.cell]
        self._sizes = config.gate_sizes(self._kind.num_gates)

    def project(self, x: Value, input_dim: int) -> Value:
        """Return the part of an input [..., input_dim] in the gates."""
        return self._normed.linear(x, f"{self._name}.input", input_dim, self._sizes)

    def __call__(self, state: State, gates: Value | None = None) -> State:
        layers, name = self._normed.layers, f"{self._name}.bias"
        if gates is None:
            gates = layers.float_weight(name, layers.weights.take(name, sum(self._sizes)))
        following: State = self._kind.step(gates, state, self)
        return following

    def project_state(self, hidden: Value, first: int, last: int) -> Value:
        """Multiply by all blocks of U, which are normalised together."""
        return self._normed.linear(hidden, f"{self._name}.hidden", self._dim, self._sizes)

    def split(self, x: Value, *blocks: int) -> list[Value]:
        return self._normed.layers.graph.split(x, [n * self._dim for n in blocks])


class NematusGraph(TranslatorGraph[NematusConfig]):
    def __init__(self, config: NematusConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.normed = NormedLayers(config, layers)
        self.words = recurrent_vocabulary(layers, config)
        self.memory = layers.state("memory", StateKind.CONSTANT, SOURCE, config.memory_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, SOURCE, config.memory_dim)
        num = config.decoder_layers
        self.cells = cell_states(config.cell, config.hidden_dim, layers.dtype, num)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.memory, self.keys, *chain(*self.cells))

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write the memory, its keys, and the decoder's first state, made of the memory's mean."""
        config, graph = self.config, self.graph
        memory = self._read_source(self.words.embed_source(ids), lengths)
        number = lengths.cast("float32").unsqueeze(1)
        share = (number - number + 1) / number  # of each word
        shares = share.where(is_real(ids, lengths), 0)
        mean = context_of(shares, memory)
        start = self.normed.linear(mean, "initial", config.memory_dim, [config.hidden_dim]).tanh()
        keys = self.normed.linear(memory, "key", config.memory_dim, [config.memory_dim])
        graph.state_output(self.memory, memory)
        graph.state_output(self.keys, keys)
        for state in chain(*self.cells):
            graph.state_output(state, graph.op.Identity(start))

    def step(self) -> None:
        """Write s_i, with c_i between its first two cells, and the readout of both and the word."""
        config, graph = self.config, self.graph
        embedded = self.words.embed_token(self.ids)
        cell = self._cell("decoder.word")
        first = cell(
            read_states(self.layers, self.cells[0]), cell.project(embedded, config.embedding_dim)
        )
        memory, keys = graph.state_input(self.memory), graph.state_input(self.keys)
        weights, context = self._attend(first[0], keys, memory)
        output = self._read_upper_layers(self._end_first_layer(first, context))
        dims = (config.embedding_dim, config.hidden_dim, config.memory_dim)
        word, state, context_part = (
            self.normed.linear(x, f"readout.{name}", dim, [config.readout_dim])
            for x, name, dim in zip(
                (embedded, output, context), ("word", "state", "context"), dims, strict=True
            )
        )
        self.words.choose((word + state + context_part).tanh())
        self.put_cross_attention(weights)

    def _cell(self, name: str) -> TransitionCellGraph:
        return TransitionCellGraph(self.normed, name)

    def _deep(self, layer: str, num_cells: int, gates: Value, state: State) -> State:
        """Run a layer's cells, of which the first reads an input."""
        for n in range(num_cells):
            state = self._cell(f"{layer}.{n}")(state, None if n else gates)
        return state

    def _end_first_layer(self, state: State, context: Value) -> Value:
        """Read the context in the first layer's further cells. Return its output."""
        cell = self._cell("decoder.context")
        state = cell(state, cell.project(context, self.config.memory_dim))
        for n in range(self.config.decoder_transitions - 2):
            state = self._cell(f"decoder.transitions.{n}")(state)
        write_states(self.layers, self.cells[0], state)
        return state[0]

    def _read_upper_layers(self, x: Value) -> Value:
        """Read the first layer's output in the layers above. Return the top one's output."""
        config = self.config
        for depth, states in enumerate(self.cells[1:]):
            layer = f"decoder.above.{depth}"
            gates = self._cell(f"{layer}.0").project(x, config.hidden_dim)
            state = read_states(self.layers, states)
            following = self._deep(layer, config.higher_transitions, gates, state)
            write_states(self.layers, states, following)
            x = following[0] + x if config.skip else following[0]
        return x

    def _attend(self, hidden: Value, keys: Value, memory: Value) -> tuple[Value, Value]:
        """Return softmax(v . tanh(query + keys)), f32 [batch, source], and the context."""
        dim = self.config.memory_dim
        query = self.normed.linear(hidden, "query", self.config.hidden_dim, [dim])
        lengths = self.graph.input("source_lengths", "int32", ())
        return attend_to_states(self.layers, query, keys, memory, lengths, dim, "score")

    def _read_source(self, x: Value, lengths: Value) -> Value:
        config = self.config
        sides = []
        for name, is_backward in (("forwards", False), ("backwards", True)):
            y, in_dim = x, config.embedding_dim
            for depth in range(config.layers_of_direction):
                turns = config.encoder == "alternating" and depth % 2 == 1
                layer = f"encoder.{name}.{depth}"
                y = self._layer(y, layer, in_dim, lengths, is_backward != turns, depth > 0)
                in_dim = config.hidden_dim
            sides.append(y)
        x, in_dim = self.graph.op.Concat(*sides, axis=-1), 2 * config.hidden_dim
        for depth in range(config.layers_above):
            x = self._layer(x, f"encoder.above.{depth}", in_dim, lengths, False, depth > 0)
            in_dim = config.hidden_dim
        return x

    def _layer(
        self, x: Value, name: str, in_dim: int, lengths: Value, is_backward: bool, may_skip: bool
    ) -> Value:
        """Read x [batch, source, in_dim] in one direction: [batch, source, hidden_dim]."""
        directed = self._reverse(x, lengths) if is_backward else x
        gates = self._cell(f"{name}.0").project(directed, in_dim)
        outputs = self._run(gates, name)
        # This separates a Transpose from a MatMul: in fp16 ONNX Runtime would fuse the two and
        # crash on the loop.
        any_output = outputs[:, :, 0].cast(self.layers.target.common_dtype)
        outputs = outputs.where(is_real(any_output, lengths).unsqueeze(2), 0)
        outputs = self._reverse(outputs, lengths) if is_backward else outputs
        return outputs + x if may_skip and self.config.skip else outputs

    def _run(self, gates: Value, name: str) -> Value:
        """Read word by word, given the input's part [batch, source, gates] in a layer's gates."""
        in_time, dim = gates.transpose(1, 0, 2), self.config.hidden_dim
        some = gates[:, 0][:, :dim]
        begin = [some - some] * CELLS[self.config.cell].num_states

        def write_iteration(position: Value, *state: Value) -> list[Value]:
            following = self._deep(name, self.config.encoder_transitions, in_time[position], state)
            return [*following, self.graph.op.Identity(following[0])]

        *_, outputs = self.graph.loop(
            gates.length(1), begin, self.layers.dtype, write_iteration, num_scan_outputs=1
        )
        return outputs.transpose(1, 0, 2)

    def _reverse(self, x: Value, lengths: Value) -> Value:
        return reverse_rows(x.cast(self.layers.target.common_dtype), lengths).cast(x.dtype)


build = NematusGraph.build
