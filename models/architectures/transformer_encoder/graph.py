"""Graphs of the Transformer's encoder alone."""

from collections.abc import Callable

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, SourceTokens, is_real
from export.layers.basic import feed_forward, head_layout
from export.layers.convolutions import neighbours
from export.layers.encoder import SQUASHING, EncoderGraph, pool
from export.layers.memory import encoder_attention_weights
from export.layers.positions import (
    AddedPositions,
    DisentangledPositionsGraph,
    RelativePositionsGraph,
)
from models.architectures.transformer_encoder.config import (
    ConvolutionOptions,
    Disentangled,
    TransformerEncoderConfig,
)
from models.configs.transformer import Relative
from models.layers.position_tables import disentangled_buckets, relative_buckets
from serving.bundle.manifest import SOURCE, AttentionKind

Bias = Callable[[Value, str], Value | None]  # of scores, given the tokens' qkv and a layer's name


class TransformerEncoderGraph(EncoderGraph[TransformerEncoderConfig]):
    """Computes on real tokens only; attention and pooling read whole rows."""

    def encode(self, ids: Value, lengths: Value) -> Value:
        config, target = self.config, self.layers.target
        self.heads = AttentionSizes(
            config.num_heads, config.num_heads, head_layout(config.head_size), target
        )
        tokens = SourceTokens(ids, lengths, target)
        x, bias = self._embed(tokens), self._bias(ids, tokens)
        embedded, convolution = x, config.convolution
        for number in range(config.num_layers):
            layer = f"layers.{number % config.num_stored_layers}"
            x = self._attend(x, layer, tokens, lengths, bias)
            x = self._feed(x, f"{layer}.feed_forward")
            if number == 0 and convolution is not None:
                within = is_real(ids, lengths).unsqueeze(2)
                rows = tokens.spread(embedded).where(within, 0.0)
                windows = neighbours(self.layers, rows, convolution.kernel_size)
                num_inputs = convolution.kernel_size * config.d_model
                x = self._convolve(x, tokens.pack_rows(windows, num_inputs), convolution)
        self.attention_outputs.finish(AttentionKind.ENCODER, config.num_heads)
        x = tokens.spread(x)
        return x if config.head.per_token else pool(x, ids, lengths, config.pooling)

    def _embed(self, tokens: SourceTokens) -> Value:
        config, layers, take = self.config, self.layers, self.layers.weights.take
        dim, num_types = config.word_dim, config.num_types
        x = layers.embed(tokens.ids, "embedding", config.vocab_size, dim)
        types = take("types.weight", num_types, dim) if num_types else None
        if config.has_positions:
            positions = take("positions.weight", config.max_source_tokens, dim)
            if num_types == 1:  # of all tokens
                positions, types = positions + types, None
            added = AddedPositions(layers, "positions.weight", positions)
            x = added.add_source(x, tokens.positions)
        if types is not None:
            given = self.graph.input("source_types", "int64", (SOURCE,))
            x = x + layers.lookup(tokens.pack_tokens(given), "types.table", types)
        x = self._norm(x, "embedding_norm", dim)
        if config.embedding_dim is None:
            return x
        return layers.linear(x, ["projection"], dim, [config.d_model], bias=True)

    def _bias(self, ids: Value, tokens: SourceTokens) -> Bias:
        """Return what gives the bias of a layer's scores."""
        config, take = self.config, self.layers.weights.take
        match config.distances:
            case Relative(num_buckets=num_buckets, max_distance=farthest):
                weight = take("distances.weight", num_buckets, config.num_heads)
                table = weight[relative_buckets(num_buckets, farthest, bidirectional=True)].T
                bias = RelativePositionsGraph(
                    self.layers, "distances.weight", table, 0
                ).source_bias(ids)
                return lambda qkv, layer: bias
            case Disentangled() as distances:
                positions = self._disentangled_positions(distances, ids)
                return lambda qkv, layer: positions.bias(tokens.spread(qkv), layer)
            case None:
                return lambda qkv, layer: None

    def _disentangled_positions(
        self, distances: Disentangled, ids: Value
    ) -> DisentangledPositionsGraph:
        buckets = disentangled_buckets(
            self.config.max_source_tokens, distances.num_buckets, distances.max_distance
        )
        return DisentangledPositionsGraph(
            self.layers,
            ids,
            self.heads,
            2 * distances.num_buckets,
            buckets,
            has_keys=distances.content_to_position,
            has_queries=distances.position_to_content,
        )

    def _attend(
        self, x: Value, layer: str, tokens: SourceTokens, lengths: Value, bias_of: Bias
    ) -> Value:
        size, heads, layers = self.config.d_model, self.heads, self.layers
        name, names = f"{layer}.self_attention", ("query", "key", "value")
        dim, layout = heads.trained_query_dim, heads.layout
        parts = [f"{name}.{part}" for part in names]
        qkv = layers.linear(x, parts, size, [dim] * 3, bias=True, into=layout)
        bias = bias_of(qkv, layer)
        attended, weights = tokens.attend(qkv, heads, bias)
        if self.attention_outputs.is_on:
            if weights is None:
                weights = encoder_attention_weights(tokens.spread(qkv), lengths, heads, bias)
            self.attention_outputs.add(AttentionKind.ENCODER, weights)
        update = layers.linear(attended, [f"{name}.output"], dim, [size], bias=True, out_of=layout)
        return self._norm(x + update, f"{name}_norm", size)

    def _feed(self, x: Value, name: str) -> Value:
        config = self.config
        dims = config.d_model, config.ffn_dim
        update = feed_forward(
            self.layers, x, name, dims, config.activation, is_gated=False, bias=True
        )
        return self._norm(x + update, f"{name}_norm", config.d_model)

    def _convolve(self, x: Value, windows: Value, config: ConvolutionOptions) -> Value:
        """Add to x what comes of each token's window, its neighbours side by side with it."""
        size, layers = self.config.d_model, self.layers
        names, num_inputs = ["convolution.linear"], config.kernel_size * size
        convolved = SQUASHING[config.activation](
            layers.linear(windows, names, num_inputs, [size], bias=True)
        )
        return self._norm(x + convolved, "convolution.norm", size)

    def _norm(self, x: Value, name: str, dim: int) -> Value:
        return self.layers.layer_norm(x, name, dim, self.config.norm_epsilon)


build = TransformerEncoderGraph.build
