"""The graph of Mamba: states of fixed size that every token updates; many tokens at once.

The recurrence is ONNX Runtime's LinearAttention with a head for each channel: C as queries, B as
keys, dt x as values of one number, and a decay for each of the channel's numbers.
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
from models.architectures.mamba.config import MambaConfig
from serving.bundle.manifest import StateSpec


class MambaLayer:
    """One layer. kept: the numbers of every channel."""

    def __init__(self, config: MambaConfig, layers: Layers, number: int) -> None:
        self._config, self._layers, self._graph = config, layers, layers.graph
        self._name, inner = f"layers.{number}", config.inner_dim
        self._convolution = CausalConvolutionGraph(layers, number, inner, config.conv_kernel_size)
        self.ssm_state = updated_in_place(layers, f"kept.{number}", inner, config.state_dim, 1)

    @property
    def states(self) -> list[StateSpec]:
        return [self._convolution.window, self.ssm_state]

    def build(self, u: Value, tokens: RealTokens) -> Value:
        config, layers, inner = self._config, self._layers, self._config.inner_dim
        normed = layers.rms_norm(u, f"{self._name}.norm", config.d_model, config.norm_epsilon)
        read, z = self._linear(normed, config.d_model, x=inner, z=inner)
        x = self._convolution.build(read, tokens, bias=config.imported.conv_bias)
        gated = self._recur(x, tokens) * (z * z.sigmoid())
        [update] = self._linear(gated.cast(layers.dtype), inner, output=config.d_model)
        return u + update.cast(layers.dtype)

    def _recur(self, x: Value, tokens: RealTokens) -> Value:
        """Return y [batch, tokens, inner]. Where dt is 0, as for padding, a state stays
        unchanged.
        """
        graph, layers, inner = self._graph, self._layers, self._config.inner_dim
        rank, dim = self._config.step_rank, self._config.state_dim
        low, b, c = self._linear(x.cast(layers.dtype), inner, low=rank, B=dim, C=dim)
        [dt] = self._linear(low.cast(layers.dtype), rank, dt=inner)
        dt = layers.softplus(dt) * tokens.are_real
        y, following = graph.ms.LinearAttention(
            c,
            b,
            x * dt,
            graph.state_input(self.ssm_state),
            (dt.unsqueeze(3) * self._a()).reshape(0, 0, inner * dim),
            q_num_heads=1,
            kv_num_heads=inner,
            update_rule="gated",
            scale=1.0,
            _outputs=2,
        )
        graph.next_state(self.ssm_state, following)
        return y + x * graph.weight(f"{self._name}.mixer.D", self._take("D", inner))

    def _a(self) -> Value:
        a = -np.exp(self._take("A_log", self._config.inner_dim, self._config.state_dim))
        return self._graph.weight(f"{self._name}.mixer.A", a)

    def _linear(self, normed: Value, in_dim: int, **sizes: int) -> list[Value]:
        """Apply linear layers side by side; return what each gives, in single precision."""
        names = [f"{self._name}.mixer.{part}" for part in sizes]
        bias = "dt" in sizes or (self._config.imported.biases and "low" not in sizes)
        joined = self._layers.linear(normed, names, in_dim, list(sizes.values()), bias=bias)
        return self._graph.split(joined.cast(PRECISE), list(sizes.values()))

    def _take(self, name: str, *shape: int) -> np.ndarray:
        return self._layers.weights.take(f"{self._name}.mixer.{name}", *shape)


build = partial(build_model, MambaLayer)
