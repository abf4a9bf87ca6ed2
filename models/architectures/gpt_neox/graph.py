"""Graphs of the GPT-NeoX-shaped language model: RoPE of a part of each head, parallel sublayers.

Biases of scores, by head and position of the key, are one more number of each key, which meets a 1
in the queries. So they cost no memory beside the keys, and every reader of keys finds them.
"""

import math

import numpy as np

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, positions_from_zero
from export.layers.basic import Layers, feed_forward, head_layout
from export.layers.decoder_only import DecoderOnlyGraph
from export.layers.positions import rotary_tables
from models.architectures.gpt_neox.config import GPTNeoXConfig

BIAS_PARTS = 2  # the number in the type of keys, and what is left of it


class GPTNeoXGraph(DecoderOnlyGraph[GPTNeoXConfig]):
    def __init__(self, config: GPTNeoXConfig, layers: Layers) -> None:
        self.has_qkv_bias = self.has_mixing_bias = config.imported.attention_bias
        self.has_output_bias = config.imported.output_bias
        super().__init__(config, layers)

    def heads_of(self, layer: int) -> AttentionSizes:
        config = self.config
        frequencies, magnitude = config.frequencies_of(layer), config.imported.rotary_magnitude
        spare = BIAS_PARTS if config.imported.position_biases else 0
        layout = head_layout(config.head_size, len(frequencies), spare)
        sizes = (config.num_heads, config.kv_heads, layout)
        tables = rotary_tables(self.layers, config.context_length, frequencies, magnitude, "rotary")
        return AttentionSizes(
            *sizes, self.layers.target, rotary=tables, window=config.window_of(layer)
        )

    def read_positions(self, ids: Value, past_lengths: Value) -> None:
        if self.config.imported.position_biases:
            positions = positions_from_zero(ids) + past_lengths.unsqueeze(1)
            self.biases = self._biases(positions.minimum(self.config.context_length - 1))

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        x = super().embed(ids, past_lengths)
        return self.norm(x, "embedding_norm") if self.config.imported.embedding_norm else x

    def normalise_heads(self, qkv: Value, name: str, heads: AttentionSizes) -> Value:
        imported = self.config.imported
        if (limit := imported.qkv_limit) is not None:
            floats = qkv.cast(self.layers.target.common_dtype)  # CUDA has no minimum of bf16
            qkv = floats.minimum(limit).maximum(-limit).cast(qkv.dtype)
        if imported.qk_norm:
            query, key, value = self.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
            query = self._normalise(query, f"{name}.query_norm", heads)
            key = self._normalise(key, f"{name}.key_norm", heads)
            qkv = self.graph.op.Concat(query, key, value, axis=-1)
        if imported.position_biases:
            qkv = (qkv.reshape(0, 0, -1, heads.head_dim) + self.biases).reshape(0, 0, -1)
        return qkv

    def block(self, x: Value, layer: int, total_lengths: Value) -> Value:
        name = f"layers.{layer}"
        if self.config.imported.residual_after_norm:
            x = self._layer_norm(x, f"{name}.attention_norm")
            x = x + self.attend(x, layer, total_lengths)
            x = self._layer_norm(x, f"{name}.feed_forward_norm")
            return x + self.feed_forward(x, f"{name}.feed_forward")
        if not self.config.parallel_residual:
            return super().block(x, layer, total_lengths)
        y = self.feed_forward(self.norm(x, f"{name}.feed_forward_norm"), f"{name}.feed_forward")
        return x + (self.attend(x, layer, total_lengths) + y)

    def feed_forward(self, x: Value, name: str) -> Value:
        config, imported = self.config, self.config.imported
        sizes, bias = (config.d_model, config.ffn_dim), imported.ffn_bias
        return feed_forward(
            self.layers, x, name, sizes, config.activation, is_gated=imported.gated_ffn, bias=bias
        )

    def norm(self, x: Value, name: str) -> Value:
        is_normalised = self.config.imported.residual_after_norm and name.startswith("layers.")
        return x if is_normalised else self._layer_norm(x, name)

    def _layer_norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model, self.config.norm_epsilon)

    def _normalise(self, x: Value, name: str, heads: AttentionSizes) -> Value:
        """Divide each head of x [batch, tokens, heads * head_dim] by its root mean square, and
        multiply it by weights of its own.
        """
        layers, layout = self.layers, heads.layout
        num_heads = heads.num_heads if name.endswith("query_norm") else heads.num_kv_heads
        weight = layers.weights.take(f"{name}.weight", num_heads, layout.size).reshape(-1)
        normed = layers.op.SimplifiedLayerNormalization(
            x.reshape(0, 0, -1, heads.head_dim),
            layers.float_weight(f"{name}.one", np.full(heads.head_dim, math.sqrt(layout.share))),
            axis=-1,
            epsilon=self.config.norm_epsilon * layout.share,  # padding counts in the mean
            stash_type=1,
        )
        scale = layers.float_weight(f"{name}.weight", layout.spread(weight))
        return normed.reshape(0, 0, -1) * scale

    def _biases(self, positions: Value) -> Value:
        """Return what is added to the heads of queries, keys and values of tokens at int32
        positions [batch, tokens]: [batch, tokens, heads of all, head_dim].
        """
        layers, heads, length = self.layers, self.layer_heads(0), self.config.context_length
        name, num_heads = "position_biases.weight", heads.num_heads
        biases = layers.weights.take(name, length, num_heads) * np.float32(1 / heads.scale)
        rounded = biases.astype(layers.dtype).astype(np.float32)
        table = np.zeros((length, 3 * num_heads, BIAS_PARTS), np.float32)
        table[:, :num_heads] = 1
        table[:, num_heads : 2 * num_heads] = np.stack([rounded, biases - rounded], -1)
        after = heads.head_dim - heads.layout.size - BIAS_PARTS
        return layers.pad(
            layers.lookup(positions, name, table), heads.layout.size, after, axes=[-1]
        )


build = GPTNeoXGraph.build
