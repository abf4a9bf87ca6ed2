"""The Llama-shaped language model: RoPE in the attention operator, RMSNorm, gated feed-forward."""

from collections.abc import Sequence

from export.families.language_models.decoder_only import DecoderOnlyStep, decoder_only
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import Value
from export.layers.attention import Heads
from export.layers.basic import Layers
from export.layers.feed_forward import feed_forward
from export.layers.heads import head_layout
from export.layers.rotary import rotary_tables
from models.configs.language_models.llama import LlamaConfig
from serving.bundle.manifest import Precision


def build(config: LlamaConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return decoder_only(_Step, config, weights, precision)


class _Step(DecoderOnlyStep):
    config: LlamaConfig

    def __init__(self, config: LlamaConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.has_qkv_bias = config.attention_bias != "none"
        self.has_mixing_bias = config.attention_bias == "all"

    def heads_of(self, layer: int) -> Heads:
        config = self.config
        frequencies, magnitude = config.table_of(layer)
        is_own = config.window_frequencies is not None and frequencies is config.window_frequencies
        name = "rotary.window" if is_own else "rotary"
        length = config.context_length
        return Heads(
            config.num_heads,
            config.num_kv_heads,
            head_layout(config.head_size, len(frequencies)),
            self.layers.dtype,
            rotary=rotary_tables(self.layers, length, frequencies, magnitude, name),
            window=config.window_of(layer),
            cap=config.attention_cap,
        )

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        sizes = (self.config.vocab_size, self.config.d_model)
        return self.layers.embed(ids, "embedding", *sizes, self.config.embedding_scale)

    def block(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        if not self.config.sandwich_norms:
            return super().block(x, layer, total_lengths)
        op, name = self.graph.op, f"layers.{layer}"
        y = self.attend(x, layer, total_lengths)
        x = op.Add(x, self.norm(y, f"{name}.attention_output_norm"))
        y = self.feed_forward(self.norm(x, f"{name}.feed_forward_norm"), f"{name}.feed_forward")
        return op.Add(x, self.norm(y, f"{name}.feed_forward_output_norm"))

    def normalise_heads(self, qkv: Value, name: str, heads: Heads) -> Value:
        if not self.config.qk_norm:
            return qkv
        query, key, value = self.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
        query = self._normalise(query, f"{name}.query_norm", heads)
        key = self._normalise(key, f"{name}.key_norm", heads)
        return self.graph.op.Concat(query, key, value, axis=-1)

    def feed_forward(self, x: Value, name: str) -> Value:
        config = self.config
        sizes, bias = (config.d_model, config.ffn_dim), config.ffn_bias
        return feed_forward(
            self.layers, x, name, sizes, config.activation, is_gated=True, bias=bias
        )

    def norm(self, x: Value, name: str) -> Value:
        return self.layers.rms_norm(x, name, self.config.d_model, self.config.norm_epsilon)

    def logits(self, x: Value) -> Value:
        """Squeezed into -cap..cap, if there is a cap (Gemma Team 2024, 2)."""
        logits, cap = super().logits(x), self.config.logit_cap
        if cap is None:
            return logits
        scale = self.graph.constant(cap, self.layers.dtype)
        return self.graph.op.Mul(self.graph.op.Tanh(self.graph.op.Div(logits, scale)), scale)

    def _normalise(self, x: Value, name: str, heads: Heads) -> Value:
        """Each head of x [batch, tokens, heads * head_dim] by itself (Henry et al. 2020)."""
        graph, config = self.graph, self.config
        split = graph.op.Reshape(x, graph.ints(0, 0, -1, heads.head_dim))
        normed = self.layers.rms_norm(
            split, name, config.head_size, config.norm_epsilon, heads.layout
        )
        return graph.op.Reshape(normed, graph.ints(0, 0, -1))
