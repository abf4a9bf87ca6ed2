"""Graphs of the GPT-2-shaped language model: learned positions, LayerNorm, GELU, biases."""

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, positions_from_one
from export.layers.basic import feed_forward, head_layout
from export.layers.decoder_only import DecoderOnlyGraph
from models.architectures.gpt2.config import GPT2Config


class GPT2Graph(DecoderOnlyGraph[GPT2Config]):
    has_qkv_bias = has_mixing_bias = True

    def heads_of(self, layer: int) -> AttentionSizes:
        config = self.config
        sizes = (config.num_heads, config.num_heads, head_layout(config.head_size))
        return AttentionSizes(*sizes, self.layers.target, window=config.window_of(layer))

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """Add positions. Padding may be beyond the last one."""
        name, length = "positions.weight", self.config.context_length
        table = self.layers.weights.take(name, length, self.config.d_model)
        before = (past_lengths - 1).unsqueeze(1)
        clipped = (positions_from_one(ids) + before).minimum(length - 1)
        return super().embed(ids, past_lengths) + self.layers.lookup(clipped, name, table)

    def feed_forward(self, x: Value, name: str) -> Value:
        sizes, activation = (self.config.d_model, self.config.ffn_dim), self.config.activation
        return feed_forward(self.layers, x, name, sizes, activation, is_gated=False, bias=True)

    def norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model, self.config.norm_epsilon)


build = GPT2Graph.build
