"""Graphs of the GPT-NeoX-shaped language model: RoPE of a part of each head, parallel sublayers."""

from collections.abc import Sequence

from export.graph.writer import Value
from export.layers.attention import Heads
from export.layers.basic import Layers, feed_forward, head_layout
from export.layers.decoder_only import DecoderOnlyGraph
from export.layers.positions import rotary_tables
from models.architectures.gpt_neox.config import GPTNeoXConfig


class GPTNeoXGraph(DecoderOnlyGraph[GPTNeoXConfig]):
    def __init__(self, config: GPTNeoXConfig, layers: Layers) -> None:
        self.has_qkv_bias = self.has_mixing_bias = config.imported.attention_bias
        self.has_output_bias = config.imported.output_bias
        super().__init__(config, layers)

    def heads_of(self, layer: int) -> Heads:
        config = self.config
        frequencies, magnitude = config.frequencies, config.imported.rotary_magnitude
        layout = head_layout(config.head_size, len(frequencies))
        sizes = (config.num_heads, config.kv_heads, layout)
        tables = rotary_tables(self.layers, config.context_length, frequencies, magnitude, "rotary")
        return Heads(*sizes, self.layers.target, rotary=tables, window=config.window)

    def block(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        if not self.config.parallel_residual:
            return super().block(x, layer, total_lengths)
        name = f"layers.{layer}"
        y = self.feed_forward(self.norm(x, f"{name}.feed_forward_norm"), f"{name}.feed_forward")
        return x + (self.attend(x, layer, total_lengths) + y)

    def feed_forward(self, x: Value, name: str) -> Value:
        sizes, activation = (self.config.d_model, self.config.ffn_dim), self.config.activation
        return feed_forward(self.layers, x, name, sizes, activation, is_gated=False, bias=True)

    def norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model, self.config.norm_epsilon)


build = GPTNeoXGraph.build
