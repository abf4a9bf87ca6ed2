"""Graphs of encoders' layers that rotate, which architectures share."""

from functools import cached_property

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, SourceTokens
from export.layers.basic import Layers, feed_forward, head_layout
from export.layers.memory import AttentionOutputs, encoder_attention_weights
from export.layers.positions import reach_bias, rotary_tables, rotate
from models.configs.rotary_encoder import RotaryStackConfig, RotaryWindow
from serving.bundle.manifest import SOURCE, AttentionKind

SPAN_MULTIPLE = 16  # of spans that are no longer


class RotaryStackGraph:
    """The layers over one batch of sources. They compute on real tokens only; attention reads whole
    rows.

    prefix: of the names of weights.
    """

    def __init__(
        self,
        config: RotaryStackConfig,
        layers: Layers,
        attention_outputs: AttentionOutputs,
        prefix: str = "",
    ) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.attention_outputs, self.prefix = attention_outputs, prefix

    def hidden_states(self, ids: Value, lengths: Value, tokens: SourceTokens) -> Value:
        """Return vectors of the tokens, after the last norm."""
        config = self.config
        self.ids, self.lengths, self.tokens = ids, lengths, tokens
        x = self._embed()
        for layer in range(config.num_layers):
            x = self._block(x, layer)
        if config.norm.place == "pre":
            x = self._norm(x, f"{self.prefix}norm")
        self.attention_outputs.finish(AttentionKind.ENCODER, config.num_heads)
        return x

    def _embed(self) -> Value:
        config, layers, tokens = self.config, self.layers, self.tokens
        name = f"{self.prefix}embedding"
        x = layers.embed(tokens.ids, name, config.vocab_size, config.d_model)
        if config.num_types:
            table = layers.weights.take("types.weight", config.num_types, config.d_model)
            if config.num_types == 1:  # of all tokens
                x = x + layers.float_weight("types.table", table[0])
            else:
                types = tokens.pack_tokens(self.graph.input("source_types", "int64", (SOURCE,)))
                x = x + layers.lookup(types, "types.table", table)
        return self._norm(x, f"{name}_norm") if config.embedding_norm else x

    def _block(self, x: Value, layer: int) -> Value:
        config, name = self.config, f"{self.prefix}layers.{layer}"
        if config.norm.place == "post":
            x = self._norm(x + self._attend(x, layer), f"{name}.attention_norm")
            return self._norm(x + self._feed(x, name), f"{name}.feed_forward_norm")
        has_norm = config.has_attention_norm(layer)
        update = self._attend(self._norm(x, f"{name}.attention_norm") if has_norm else x, layer)
        x = x + self._normalise_update(update, f"{name}.attention_output_norm")
        update = self._feed(self._norm(x, f"{name}.feed_forward_norm"), name)
        return x + self._normalise_update(update, f"{name}.feed_forward_output_norm")

    def _normalise_update(self, update: Value, name: str) -> Value:
        return self._norm(update, name) if self.config.imported.sandwich_norms else update

    def _attend(self, x: Value, layer: int) -> Value:
        config, layers = self.config, self.layers
        name, size = f"{self.prefix}layers.{layer}.attention", config.d_model
        bias = config.imported.attention_bias
        heads, reach = self._local_heads if config.window_of(layer) else self._whole
        dims = [heads.trained_query_dim, heads.trained_kv_dim, heads.trained_kv_dim]
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        qkv = layers.linear(x, parts, size, dims, bias=bias != "none", into=heads.layout)
        qkv = self._rotate(qkv, heads, name)
        attended, weights = self.tokens.attend(qkv, heads, reach)
        if self.attention_outputs.is_on:
            if weights is None:
                spread = self.tokens.spread(qkv)
                weights = encoder_attention_weights(spread, self.lengths, heads, reach)
            self.attention_outputs.add(AttentionKind.ENCODER, weights)
        output, has_bias = [f"{name}.output"], bias == "all"
        return layers.linear(attended, output, dims[0], [size], bias=has_bias, out_of=heads.layout)

    @cached_property
    def _whole(self) -> tuple[AttentionSizes, Value | None]:
        """The heads of layers without a window, and what is added to their scores."""
        return self._heads(None)

    @cached_property
    def _local_heads(self) -> tuple[AttentionSizes, Value | None]:
        return self._heads(self.config.window)

    def _heads(self, window: RotaryWindow | None) -> tuple[AttentionSizes, Value | None]:
        config, layers = self.config, self.layers
        rotation = window.rotation if window else config.rotation
        pairs, name = rotation.pairs_of(config.head_size), "rotary.window" if window else "rotary"
        length = longest_span(config.max_source_tokens)
        tables = rotary_tables(layers, length, pairs, rotation.magnitude, self.prefix + name)
        heads = AttentionSizes(
            config.num_heads,
            config.kv_heads,
            head_layout(config.head_size, len(pairs)),
            layers.target,
            rotary=tables,
            cap=config.imported.attention_cap,
        )
        size = window.size if window else None
        return heads, reach_bias(self.ids, size, is_causal=config.causal)

    def _rotate(self, qkv: Value, heads: AttentionSizes, name: str) -> Value:
        """Rotate queries and keys, normalised first if they are. On a CPU tokens are packed, and
        each is a row of its own here.
        """
        is_packed = not heads.target.is_cuda
        positions = self.tokens.positions.cast("int64")
        if is_packed:
            qkv, positions = qkv.unsqueeze(1), positions.unsqueeze(1)
        sizes = [heads.query_dim, heads.kv_dim, heads.kv_dim]
        query, key, value = self.graph.split(qkv, sizes)
        if self.config.imported.qk_norm:
            query = self._normalise(query, f"{name}.query_norm", heads)
            key = self._normalise(key, f"{name}.key_norm", heads)
        assert heads.rotary is not None, "a rotation has pairs"
        query = rotate(query, positions, heads.rotary, heads.num_heads)
        key = rotate(key, positions, heads.rotary, heads.num_kv_heads)
        joined: Value = self.graph.op.Concat(query, key, value, axis=-1)
        return joined.squeeze(1) if is_packed else joined

    def _normalise(self, x: Value, name: str, heads: AttentionSizes) -> Value:
        """Normalise each head of x [batch, tokens, heads * head_dim] (Henry et al. 2020)."""
        size, epsilon = self.config.head_size, self.config.norm.epsilon
        split = x.reshape(0, 0, -1, heads.head_dim)
        return self.layers.rms_norm(split, name, size, epsilon, heads.layout).reshape(0, 0, -1)

    def _feed(self, x: Value, name: str) -> Value:
        config = self.config
        dims, bias = (config.d_model, config.ffn_dim), config.imported.ffn_bias
        name = f"{name}.feed_forward"
        return feed_forward(self.layers, x, name, dims, config.activation, is_gated=True, bias=bias)

    def _norm(self, x: Value, name: str) -> Value:
        norm = self.layers.rms_norm if self.config.norm.kind == "rms" else self.layers.layer_norm
        return norm(x, name, self.config.d_model, self.config.norm.epsilon)


def longest_span(max_source_tokens: int) -> int:
    """Return a bound on the padded length of a source, of which the engine pads at most an eighth:
    the operator refuses rows that are longer than its tables.
    """
    return max_source_tokens * 9 // 8 + SPAN_MULTIPLE
