"""Graphs of the Llama-shaped language model: RoPE in the operator, RMSNorm, gated feed-forward."""

from functools import partial

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, positions_from_one
from export.layers.basic import Layers, feed_forward, head_layout
from export.layers.decoder_only import DecoderOnlyGraph
from export.layers.experts import mixture_of_experts
from export.layers.positions import rotary_tables, rotate
from models.architectures.llama.config import LATENT_EPSILON, LatentAttention, LlamaConfig
from models.layers.position_tables import query_growth

INPUT_NORMS = ("attention_norm", "feed_forward_norm")


class LlamaGraph(DecoderOnlyGraph[LlamaConfig]):
    def __init__(self, config: LlamaConfig, layers: Layers) -> None:
        self.has_qkv_bias = config.imported.attention_bias != "none"
        self.has_mixing_bias = config.imported.attention_bias == "all"
        self.embedding_scale = config.imported.embedding_scale
        self.logit_cap = config.imported.logit_cap
        super().__init__(config, layers)

    def read_positions(self, ids: Value, past_lengths: Value) -> None:
        growth, length = self.config.imported.query_growth, self.config.context_length
        if growth or self.config.imported.qk_norm_after_rotation:
            beyond = positions_from_one(ids) + (past_lengths - 1).unsqueeze(1)  # of padding
            self.positions = beyond.minimum(length - 1).cast("int64")
        if growth:
            factors = query_growth(length, growth.rate, growth.length)
            self.growth = self.layers.lookup(self.positions, "query_growth", factors)

    def heads_of(self, layer: int) -> AttentionSizes:
        config = self.config
        frequencies, _ = config.table_of(layer)
        is_rotated_here = config.imported.qk_norm_after_rotation
        layout, latent = (
            head_layout(config.head_size, len(frequencies)),
            config.imported.latent_attention,
        )
        return AttentionSizes(
            config.num_heads,
            config.num_kv_heads,
            layout,
            self.layers.target,
            rotary=None if is_rotated_here else self._rotary_of(layer),
            window=config.window_of(layer),
            cap=config.imported.attention_cap,
            sinks=self._sinks_of(layer) if config.imported.attention_sinks else None,
            value_layout=None if latent is None else layout.with_first(latent.value_size),
        )

    def project_heads(self, x: Value, name: str, heads: AttentionSizes) -> Value:
        latent = self.config.imported.latent_attention
        if latent is None:
            return super().project_heads(x, name, heads)
        return self._project_latents(x, name, heads, latent)

    def block(self, x: Value, layer: int, total_lengths: Value) -> Value:
        if not self.config.imported.sandwich_norms:
            return super().block(x, layer, total_lengths)
        name = f"layers.{layer}"
        y = self.attend(x, layer, total_lengths)
        x = x + self.norm(y, f"{name}.attention_output_norm")
        y = self.feed_forward(self.norm(x, f"{name}.feed_forward_norm"), f"{name}.feed_forward")
        return x + self.norm(y, f"{name}.feed_forward_output_norm")

    def normalise_heads(self, qkv: Value, name: str, heads: AttentionSizes) -> Value:
        imported = self.config.imported
        if not (imported.qk_norm or imported.query_growth):
            return qkv
        query, key, value = self.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
        if imported.qk_norm_after_rotation:
            query, key = self._rotate(query, heads.num_heads), self._rotate(key, heads.num_kv_heads)
        if imported.qk_norm:
            query = self._normalise(query, f"{name}.query_norm", heads, heads.num_heads)
            key = self._normalise(key, f"{name}.key_norm", heads, heads.num_kv_heads)
        if imported.query_growth:
            query = query * self.growth
        return self.graph.op.Concat(query, key, value, axis=-1)

    def feed_forward(self, x: Value, name: str) -> Value:
        config = self.config
        experts = config.experts_of(int(name.split(".")[1]))
        if experts is not None:
            return mixture_of_experts(
                self.layers, x, name, config.d_model, experts, config.activation
            )
        is_gated, bias = config.imported.gated_ffn, config.imported.ffn_bias
        sizes = (config.d_model, config.ffn_dim)
        return feed_forward(
            self.layers, x, name, sizes, config.activation, is_gated=is_gated, bias=bias
        )

    def norm(self, x: Value, name: str) -> Value:
        if name.endswith(INPUT_NORMS) and not self.config.imported.input_norms:
            return x
        return self.layers.rms_norm(x, name, self.config.d_model, self.config.norm_epsilon)

    def _project_latents(
        self, x: Value, name: str, heads: AttentionSizes, latent: LatentAttention
    ) -> Value:
        """Return queries, keys and values of normalised x. Both parts of a key have zeros where the
        other one lies, and are added.
        """
        config, linear = self.config, partial(self.layers.linear, bias=False)
        rotated = 2 * len(config.frequencies)
        shared_layout, rest = heads.layout.split(rotated)
        query = x
        if latent.query_size is not None:
            query = linear(x, [f"{name}.query_latent"], config.d_model, [latent.query_size])
            query = self._normalise_latent(query, f"{name}.query_latent", latent.query_size)
        inner = linear(x, [f"{name}.latent"], config.d_model, [latent.size])
        inner = self._normalise_latent(inner, f"{name}.latent", latent.size)
        shared = linear(
            x, [f"{name}.shared_key"], config.d_model, [rotated], into=shared_layout
        ).unsqueeze(2)
        parts = {
            "query": (query, latent.query_size or config.d_model, heads.layout),
            "key": (inner, latent.size, rest),
            "value": (inner, latent.size, heads.output_layout),
        }
        queries_keys_values = {
            part: linear(source, [f"{name}.{part}"], dim, [config.num_heads * to.size], into=to)
            for part, (source, dim, to) in parts.items()
        }
        keys = queries_keys_values["key"].reshape(0, 0, -1, heads.head_dim) + shared
        return self.graph.op.Concat(
            queries_keys_values["query"],
            keys.reshape(0, 0, -1),
            queries_keys_values["value"],
            axis=-1,
        )

    def _normalise_latent(self, x: Value, name: str, size: int) -> Value:
        return self.layers.rms_norm(x, f"{name}_norm", size, LATENT_EPSILON)

    def _sinks_of(self, layer: int) -> Value:
        name = f"layers.{layer}.attention.sinks"
        return self.layers.float_weight(name, self.layers.weights.take(name, self.config.num_heads))

    def _rotary_of(self, layer: int) -> tuple[Value, Value] | None:
        config = self.config
        frequencies, magnitude = config.table_of(layer)
        is_own = (
            config.imported.window_frequencies is not None
            and frequencies is config.imported.window_frequencies
        )
        name = "rotary.window" if is_own else "rotary"
        return rotary_tables(self.layers, config.context_length, frequencies, magnitude, name)

    def _rotate(self, x: Value, num_heads: int) -> Value:
        """Rotate x [batch, tokens, heads * head_dim] where it is not attention that does it. All
        layers have the same table.
        """
        tables = self._rotary_of(0)
        return x if tables is None else rotate(x, self.positions, tables, num_heads)

    def _normalise(self, x: Value, name: str, heads: AttentionSizes, num_heads: int) -> Value:
        """Normalise each head of x [batch, tokens, heads * head_dim] (Henry et al. 2020), or all
        together.
        """
        size, epsilon = self.config.head_size, self.config.norm_epsilon
        if self.config.imported.qk_norm_spans_heads:
            return self.layers.rms_norm(x, name, num_heads * size, epsilon, heads.layout)
        split = x.reshape(0, 0, -1, heads.head_dim)
        return self.layers.rms_norm(split, name, size, epsilon, heads.layout).reshape(0, 0, -1)


build = LlamaGraph.build
