"""Graphs of the Transformer's encoder alone."""

from export.graph.writer import Value
from export.layers.attention import Heads, SourceTokens
from export.layers.basic import feed_forward, head_layout
from export.layers.encoder import EncoderGraph, pool
from export.layers.memory import encoder_attention_weights
from export.layers.positions import AddedPositions, RelativePositions
from models.architectures.transformer_encoder.config import TransformerEncoderConfig
from models.layers.position_tables import relative_buckets
from serving.bundle.manifest import SOURCE, AttentionKind


class TransformerEncoderGraph(EncoderGraph[TransformerEncoderConfig]):
    """Computes on real tokens only; attention and pooling read whole rows."""

    def encode(self, ids: Value, lengths: Value) -> Value:
        config, target = self.config, self.layers.target
        self.heads = Heads(
            config.num_heads, config.num_heads, head_layout(config.head_size), target
        )
        tokens = SourceTokens(ids, lengths, target)
        x, bias = self._embed(tokens), self._bias(ids)
        for layer in range(config.num_layers):
            x = self._attend(x, f"layers.{layer}.self_attention", tokens, lengths, bias)
            x = self._feed(x, f"layers.{layer}.feed_forward")
        self.attention_outputs.finish(AttentionKind.ENCODER, config.num_heads)
        x = tokens.spread(x)
        return x if config.head.per_token else pool(x, ids, lengths, config.pooling)

    def _embed(self, tokens: SourceTokens) -> Value:
        config, layers, take = self.config, self.layers, self.layers.weights.take
        x = layers.embed(tokens.ids, "embedding", config.vocab_size, config.d_model)
        positions = take("positions.weight", config.max_source_tokens, config.d_model)
        types = take("types.weight", config.num_types, config.d_model) if config.num_types else None
        if config.num_types == 1:  # of all tokens
            positions, types = positions + types, None
        x = AddedPositions(layers, "positions.weight", positions).add_source(x, tokens.positions)
        if types is not None:
            given = self.graph.input("source_types", "int64", (SOURCE,))
            x = x + layers.lookup(tokens.of_each(given), "types.table", types)
        return self._norm(x, "embedding_norm")

    def _bias(self, ids: Value) -> Value | None:
        config, found = self.config, self.config.distances
        if found is None:
            return None
        weight = self.layers.weights.take("distances.weight", found.num_buckets, config.num_heads)
        buckets = relative_buckets(found.num_buckets, found.max_distance, bidirectional=True)
        table = weight[buckets].T
        return RelativePositions(self.layers, "distances.weight", table, 0).source_bias(ids)

    def _attend(
        self, x: Value, name: str, tokens: SourceTokens, lengths: Value, bias: Value | None
    ) -> Value:
        size, heads, layers = self.config.d_model, self.heads, self.layers
        dim, layout, names = heads.trained_query_dim, heads.layout, ("query", "key", "value")
        parts = [f"{name}.{part}" for part in names]
        qkv = layers.linear(x, parts, size, [dim] * 3, bias=True, into=layout)
        found, weights = tokens.attend(qkv, heads, bias)
        if self.attention_outputs.is_on:
            if weights is None:
                weights = encoder_attention_weights(tokens.spread(qkv), lengths, heads, bias)
            self.attention_outputs.add(AttentionKind.ENCODER, weights)
        update = layers.linear(found, [f"{name}.output"], dim, [size], bias=True, out_of=layout)
        return self._norm(x + update, f"{name}_norm")

    def _feed(self, x: Value, name: str) -> Value:
        config = self.config
        dims = config.d_model, config.ffn_dim
        update = feed_forward(
            self.layers, x, name, dims, config.activation, is_gated=False, bias=True
        )
        return self._norm(x + update, f"{name}_norm")

    def _norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model, self.config.norm_epsilon)


build = TransformerEncoderGraph.build
