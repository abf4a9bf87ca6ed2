"""The graph of Mamba-2: states of fixed size that every token overwrites; prompts of many tokens at
once.

The recurrence is ONNX Runtime's LinearAttention with C as queries, B as keys and dt x as values,
according to state space duality (Dao and Gu 2024, section 5). It reads a row's tokens in order, so
that a prompt gives the same in one piece or in many. Convolution and recurrence are in single
precision everywhere: what a state loses in a step is lost for good.

On a CPU the operator updates the matrices in place, in a quarter of the time. Otherwise it copies
them first, and a step of many rows is bound by memory.
"""

from dataclasses import dataclass

import numpy as np

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import is_real
from export.layers.basic import Layers
from export.layers.vocabulary import VocabularyGraph
from models.architectures.mamba2.config import Mamba2Config
from serving.bundle.manifest import Limits, Precision, StateKind, StateSpec

PRECISE = "float32"


@dataclass(frozen=True)
class Tokens:
    """Which of each row's tokens [batch, tokens] are real. Padding after them must not change a
    state.

    are_real: [batch, tokens, 1], 1.0 or 0.0. ends: int64 [batch, 1], how many are real.
    """

    are_real: Value
    ends: Value


def build(config: Mamba2Config, weights: Weights, precision: Precision) -> ExportedModel:
    layers = Layers(GraphWriter("step"), weights, precision, in_blocks=True)
    graph = layers.graph
    words = VocabularyGraph(layers, config, (config.d_model, config.d_model), bias=None)
    ids = graph.input("ids", "int64", ("tokens",))
    past_lengths = graph.input("past_lengths", "int32", ())
    total_lengths = graph.input("total_lengths", "int32", ())
    tokens = _tokens(ids, total_lengths - past_lengths)
    x, states = words.embed(ids), list[StateSpec]()
    for number in range(config.num_layers):
        layer = Mamba2Layer(config, layers, number)
        x = layer.build(x, tokens)
        states += layer.states
    x = layers.last_position(x, past_lengths, total_lengths)
    words.choose(layers.rms_norm(x, "norm", config.d_model, config.norm_epsilon))
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel((graph,), tuple(states), limits)


def _tokens(ids: Value, lengths: Value) -> Tokens:
    are_real = is_real(ids, lengths).cast(PRECISE).unsqueeze(2)
    return Tokens(are_real, lengths.cast("int64").unsqueeze(1))


class Mamba2Layer:
    """One layer.

    window: the last inputs of the convolution. matrices: the heads' states.
    """

    def __init__(self, config: Mamba2Config, layers: Layers, number: int) -> None:
        self._config, self._layers, self._graph = config, layers, layers.graph
        self._name, self._channels = f"layers.{number}", sum(config.convolved.values())
        window = (config.conv_kernel_size - 1, self._channels)
        matrices = (config.num_heads, config.state_dim, config.head_dim)
        self.window = StateSpec(f"window.{number}", StateKind.REPLACE, window, PRECISE)
        kind = StateKind.REPLACE if layers.target.is_cuda else StateKind.UPDATE
        self.matrices = StateSpec(f"matrices.{number}", kind, matrices, PRECISE)

    @property
    def states(self) -> list[StateSpec]:
        return [self.window, self.matrices]

    def build(self, u: Value, tokens: Tokens) -> Value:
        """Read u [batch, tokens, d_model] and the states. Return the output and write the next
        states.
        """
        config, layers, mixer = self._config, self._layers, f"{self._name}.mixer"
        normed = layers.rms_norm(u, f"{self._name}.norm", config.d_model, config.norm_epsilon)
        names = [f"{mixer}.{part}" for part in config.projected]
        sizes = list(config.projected.values())
        projected = layers.linear(normed, names, config.d_model, sizes, bias=config.imported.biases)
        parts = [sizes[0], self._channels, sizes[-1]]
        z, read, dt = self._graph.split(projected.cast(PRECISE), parts)
        y = self._recur(self._convolve(read, tokens), dt, tokens)
        gated = self._normalise((y * (z * z.sigmoid())).cast(layers.dtype), f"{mixer}.norm")
        inner = config.inner_dim
        return u + layers.linear(
            gated, [f"{mixer}.output"], inner, [config.d_model], bias=config.imported.biases
        )

    def _convolve(self, read: Value, tokens: Tokens) -> Value:
        """Convolve inputs [batch, tokens, channels] together with those before them."""
        graph, size = self._graph, self._config.conv_kernel_size
        window = graph.state_input(self.window)
        weight = self._weight("mixer.conv.weight", self._channels, 1, size)
        bias = (
            self._weight("mixer.conv.bias", self._channels)
            if self._config.imported.conv_bias
            else None
        )
        joined = graph.op.Concat(window, read, axis=1)
        last = (tokens.ends + graph.ints(*range(size - 1))).unsqueeze(2)  # [batch, size - 1, 1]
        graph.next_state(self.window, graph.op.GatherND(joined, last, batch_dims=1))
        y, _ = graph.ms.CausalConvWithState(
            read.transpose(0, 2, 1),
            weight,
            bias,
            window.transpose(0, 2, 1),
            activation="silu",
            _outputs=2,
        )
        return y.transpose(0, 2, 1)

    def _recur(self, convolved: Value, dt: Value, tokens: Tokens) -> Value:
        """Return y [batch, tokens, inner] of x, B and C, side by side, and of dt [batch, tokens,
        heads]. Where dt is 0, as for padding, a state stays unchanged.
        """
        graph, config = self._graph, self._config
        x, b, c = graph.split(convolved, list(config.convolved.values()))
        dt = self._layers.softplus(dt + self._weight("mixer.dt_bias", config.num_heads))
        dt = dt * tokens.are_real
        values = x.reshape(0, 0, config.num_heads, config.head_dim) * dt.unsqueeze(3)
        y, following = graph.ms.LinearAttention(
            c,
            b,
            values.reshape(0, 0, config.inner_dim),
            graph.state_input(self.matrices),
            dt * self._a(),
            q_num_heads=config.num_groups,
            kv_num_heads=config.num_heads,
            update_rule="gated",
            scale=1.0,
            _outputs=2,
        )
        graph.next_state(self.matrices, following)
        d = np.repeat(self._take("mixer.D", config.num_heads), config.head_dim)
        return y + x * graph.weight(f"{self._name}.mixer.D", d)

    def _a(self) -> Value:
        a = -np.exp(self._take("mixer.A_log", self._config.num_heads))
        return self._graph.weight(f"{self._name}.mixer.A", a)

    def _normalise(self, y: Value, name: str) -> Value:
        """Divide the heads of each group by the root of their mean square."""
        config, num_groups, size = self._config, self._config.num_groups, self._config.inner_dim
        if num_groups == 1:
            return self._layers.rms_norm(y, name, size, config.norm_epsilon)
        ones = self._layers.float_weight("ones", np.ones(size // num_groups))
        normed = self._graph.op.SimplifiedLayerNormalization(
            y.reshape(0, 0, num_groups, -1),
            ones,
            axis=-1,
            epsilon=config.norm_epsilon,
            stash_type=1,
        )
        weight = self._layers.weights.take(f"{name}.weight", size)
        return normed.reshape(0, 0, -1) * self._layers.float_weight(f"{name}.weight", weight)

    def _take(self, name: str, *shape: int) -> np.ndarray:
        return self._layers.weights.take(f"{self._name}.{name}", *shape)

    def _weight(self, name: str, *shape: int) -> Value:
        return self._graph.weight(f"{self._name}.{name}", self._take(name, *shape))
