"""The Llama-shaped language model: RoPE in the attention operator, RMSNorm, SwiGLU."""

import numpy as np

from export.attention import Heads
from export.decoder_only import DecoderOnlyStep
from export.graph import Array, GraphWriter, Value
from export.layers import Layers
from export.model import ExportedModel
from export.weights import Weights
from models.configs.llama import LlamaConfig
from serving.bundle.manifest import Precision


def build(config: LlamaConfig, weights: Weights, precision: Precision) -> ExportedModel:
    layers = Layers(GraphWriter("step"), weights, precision)
    return _Step(config, layers, _heads(config, layers)).build()


class _Step(DecoderOnlyStep):
    config: LlamaConfig
    has_biases = False

    def feed_forward(self, x: Value, name: str) -> Value:
        """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""
        config, op = self.config, self.graph.op
        names, sizes = [f"{name}.gate", f"{name}.up"], [config.ffn_dim] * 2
        gate, up = self.graph.split(self.linear(x, names, config.d_model, sizes), sizes)
        activated = op.Mul(op.Mul(gate, op.Sigmoid(gate)), up)
        return self.linear(activated, [f"{name}.down"], config.ffn_dim, [config.d_model])

    def norm(self, x: Value, name: str) -> Value:
        return self.layers.rms_norm(x, name, self.config.d_model, self.config.norm_epsilon)


def _heads(config: LlamaConfig, layers: Layers) -> Heads:
    tables = rotary_tables(config.context_length, config.head_size, config.rope_theta)
    names = ("rotary.cos", "rotary.sin")
    cos, sin = (layers.float_weight(n, t) for n, t in zip(names, tables, strict=True))
    return Heads(
        config.num_heads,
        config.num_kv_heads,
        config.head_size,
        layers.dtype,
        rotary=(cos, sin),
        window=config.window,
    )


def rotary_tables(num_positions: int, head_dim: int, theta: float) -> tuple[Array, Array]:
    """cos and sin of position * theta^(-2i / head_dim): each [positions, head_dim / 2]."""
    rate = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(num_positions)[:, None] * rate
    return np.cos(angle), np.sin(angle)
