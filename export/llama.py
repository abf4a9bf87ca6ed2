"""The Llama-shaped decoder-only language model: one step graph, for prompts and single tokens."""

from itertools import chain

import numpy as np

from export.attention import Heads, self_attention
from export.graph import Array, GraphWriter, Value
from export.layers import Layers
from export.model import ExportedModel
from export.weights import Weights
from models.configs.llama import LlamaConfig
from serving.bundle.manifest import Limits, Precision, StateKind, StateSpec, Tokens

ROTARY_MULTIPLE = 16  # GroupQueryAttention rotates heads of such sizes only


def build(config: LlamaConfig, weights: Weights, precision: Precision) -> ExportedModel:
    if config.head_dim % ROTARY_MULTIPLE:
        weights.refuse(f"head_dim: {config.head_dim} is not a multiple of {ROTARY_MULTIPLE}")
    step = _Step(config, Layers(GraphWriter("step"), weights, precision))
    step.build()
    return ExportedModel(
        graphs=(step.graph,),
        states=tuple(chain(*step.states)),
        tokens=Tokens(
            pad=config.pad_id,
            bos=config.bos_id,
            eos=config.eos_id,
            source_prefix=(),
            source_suffix=(),
            prompt_prefix=(config.bos_id,),
            stop=(config.eos_id,),
        ),
        limits=Limits(max_source_tokens=None, max_target_tokens=config.context_length),
    )


class _Step:
    def __init__(self, config: LlamaConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        tables = rotary_tables(config.context_length, config.head_dim, config.rope_theta)
        names = ("rotary.cos", "rotary.sin")
        cos, sin = (layers.float_weight(n, t) for n, t in zip(names, tables, strict=True))
        self.heads = Heads(
            config.num_heads, config.num_kv_heads, config.head_dim, layers.dtype, (cos, sin)
        )
        self.states: list[list[StateSpec]] = [
            self.heads.states("self", StateKind.APPEND, layer) for layer in range(config.num_layers)
        ]

    def build(self) -> None:
        config, graph, layers = self.config, self.graph, self.layers
        ids = graph.input("ids", "int64", ("tokens",))
        past_lengths = graph.input("past_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = layers.embed(ids, "embedding", config.vocab_size, config.d_model)
        for layer in range(config.num_layers):
            x = graph.op.Add(x, self._attend(x, layer, total_lengths))
            x = graph.op.Add(x, self._feed_forward(x, f"layers.{layer}"))
        x = layers.last_position(x, past_lengths, total_lengths)
        layers.choose(self._logits(self._norm(x, "norm")), config.vocab_size)

    def _attend(self, x: Value, layer: int, total_lengths: Value) -> Value:
        graph, heads, name = self.graph, self.heads, f"layers.{layer}.attention"
        key_state, value_state = self.states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self._linear(
            self._norm(x, f"{name}_norm"),
            [f"{name}.{part}" for part in ("query", "key", "value")],
            self.config.d_model,
            [heads.query_dim, heads.kv_dim, heads.kv_dim],
        )
        mixed, keys, values = self_attention(
            graph, qkv, past, total_lengths, self.config.context_length, heads
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self._linear(mixed, [f"{name}.output"], heads.query_dim, [self.config.d_model])

    def _feed_forward(self, x: Value, layer: str) -> Value:
        """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""
        config, op, name = self.config, self.graph.op, f"{layer}.feed_forward"
        names, sizes = [f"{name}.gate", f"{name}.up"], [config.ffn_dim] * 2
        joined = self._linear(self._norm(x, f"{name}_norm"), names, config.d_model, sizes)
        gate, up = self.graph.split(joined, sizes)
        activated = op.Mul(op.Mul(gate, op.Sigmoid(gate)), up)
        return self._linear(activated, [f"{name}.down"], config.ffn_dim, [config.d_model])

    def _linear(self, x: Value, names: list[str], in_dim: int, out_dims: list[int]) -> Value:
        return self.layers.linear(x, names, in_dim, out_dims, bias=False)

    def _norm(self, x: Value, name: str) -> Value:
        return self.layers.rms_norm(x, name, self.config.d_model, self.config.norm_epsilon)

    def _logits(self, x: Value) -> Value:
        name = "embedding" if self.config.tied_embeddings else "output"
        shape = (self.config.vocab_size, self.config.d_model)
        return self.layers.project(x, name, self.layers.weights.take(f"{name}.weight", *shape))


def rotary_tables(num_positions: int, head_dim: int, theta: float) -> tuple[Array, Array]:
    """cos and sin of position * theta^(-2i / head_dim): each [positions, head_dim / 2]."""
    rate = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(num_positions)[:, None] * rate
    return np.cos(angle), np.sin(angle)
