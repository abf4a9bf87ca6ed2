"""The graph of Mamba-2: states of fixed size that every token overwrites; prompts of many tokens at
once.

The recurrence is ONNX Runtime's LinearAttention with C as queries, B as keys and dt x as values,
according to state space duality (Dao and Gu 2024, section 5). It reads a row's tokens in order, so
that a prompt gives the same in one piece or in many.
"""

from functools import partial

import numpy as np

from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.state_space import (
    PRECISE,
    CausalConvolutionGraph,
    RealTokens,
    build_model,
    updated_in_place,
)
from models.architectures.mamba2.config import Mamba2Config
from serving.bundle.manifest import StateSpec


class Mamba2Layer:
    """One layer. matrices: the heads' states."""

    def __init__(self, config: Mamba2Config, layers: Layers, number: int) -> None:
        self._config, self._layers, self._graph = config, layers, layers.graph
        self._name, self._channels = f"layers.{number}", sum(config.convolution_sizes.values())
        sizes = self._channels, config.conv_kernel_size
        self._convolution = CausalConvolutionGraph(layers, number, *sizes)
        shape = config.num_heads, config.state_dim, config.head_dim
        self.matrices = updated_in_place(layers, f"matrices.{number}", *shape)

    @property
    def states(self) -> list[StateSpec]:
        return [self._convolution.window, self.matrices]

    def build(self, u: Value, tokens: RealTokens) -> Value:
        config, layers, mixer = self._config, self._layers, f"{self._name}.mixer"
        normed = layers.rms_norm(u, f"{self._name}.norm", config.d_model, config.norm_epsilon)
        names = [f"{mixer}.{part}" for part in config.projection_sizes]
        sizes = list(config.projection_sizes.values())
        projected = layers.linear(normed, names, config.d_model, sizes, bias=config.imported.biases)
        parts = [sizes[0], self._channels, sizes[-1]]
        z, read, dt = self._graph.split(projected.cast(PRECISE), parts)
        convolved = self._convolution.build(read, tokens, bias=config.imported.conv_bias)
        y = self._recur(convolved, dt, tokens)
        gated = self._normalise((y * (z * z.sigmoid())).cast(layers.dtype), f"{mixer}.norm")
        inner = config.inner_dim
        return u + layers.linear(
            gated, [f"{mixer}.output"], inner, [config.d_model], bias=config.imported.biases
        )

    def _recur(self, convolved: Value, dt: Value, tokens: RealTokens) -> Value:
        """Return y [batch, tokens, inner] of x, B and C, side by side, and of dt [batch, tokens,
        heads]. Where dt is 0, as for padding, a state stays unchanged.
        """
        graph, config = self._graph, self._config
        x, b, c = graph.split(convolved, list(config.convolution_sizes.values()))
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


build = partial(build_model, Mamba2Layer)
