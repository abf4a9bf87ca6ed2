"""Graphs of encoder-decoders that rotate: `encode` is a rotary encoder with cross-attention's keys
and values, `step` a Transformer's with rotations, windows and caps.
"""

from dataclasses import replace

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, SourceTokens
from export.layers.basic import Layers, head_layout
from export.layers.positions import rotary_tables
from export.layers.rotary_encoder import RotaryStackGraph
from export.layers.transformer import SelfAttentionGraph
from models.architectures.rotary_encoder_decoder.config import RotaryEncoderDecoderConfig


class RotaryEncoderDecoderGraph(SelfAttentionGraph[RotaryEncoderDecoderConfig]):
    """Decodes by layers that attend to the target so far and to the source."""

    in_blocks = True  # as those of the language models whose layers these are

    def __init__(self, config: RotaryEncoderDecoderConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.logit_cap = config.logit_cap

    def make_heads(self) -> AttentionSizes:
        pairs = len(self.config.rotation.pairs_of(self.config.head_size))
        layout = head_layout(self.config.head_size, pairs)
        return replace(super().make_heads(), layout=layout, cap=self.config.attention_cap)

    def heads_of(self, layer: int) -> AttentionSizes:
        config, rotation = self.config, self.config.rotation
        pairs, length = rotation.pairs_of(config.head_size), config.max_target_tokens
        tables = rotary_tables(self.layers, length, pairs, rotation.magnitude, "decoder.rotary")
        return replace(self.heads, rotary=tables, window=config.window_of(layer))

    def encode(self, ids: Value, lengths: Value) -> None:
        tokens = SourceTokens(ids, lengths, self.layers.target)
        config, outputs = self.config.source_encoder, self.attention_outputs
        encoder = RotaryStackGraph(config, self.layers, outputs, prefix="encoder.")
        encoded = encoder.hidden_states(ids, lengths, tokens)
        self.write_memories(encoded, tokens, self.config.encoder.d_model)

    def before_sublayer(self, x: Value, norm: str) -> Value:
        return super().before_sublayer(x, f"{norm}.input")

    def after_sublayer(self, x: Value, update: Value, norm: str) -> Value:
        return super().after_sublayer(x, self._norm(update, f"{norm}.output"), norm)


build = RotaryEncoderDecoderGraph.build
