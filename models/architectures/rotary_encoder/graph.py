"""Graphs of encoders that rotate."""

from export.graph.writer import Value
from export.layers.attention import SourceTokens
from export.layers.encoder import EncoderGraph, pool
from export.layers.rotary_encoder import RotaryStackGraph
from models.architectures.rotary_encoder.config import RotaryEncoderConfig


class RotaryEncoderGraph(EncoderGraph[RotaryEncoderConfig]):
    """Computes on real tokens only; pooling reads whole rows."""

    @classmethod
    def is_in_blocks(cls, config: RotaryEncoderConfig) -> bool:
        """Language models have inputs far larger than the rest, which spoil the scale of a row."""
        return config.norm.kind == "rms"

    def encode(self, ids: Value, lengths: Value) -> Value:
        tokens = SourceTokens(ids, lengths, self.layers.target)
        stack = RotaryStackGraph(self.config, self.layers, self.attention_outputs)
        x = stack.hidden_states(ids, lengths, tokens)
        return pool(tokens.spread(x), ids, lengths, self.config.pooling)


build = RotaryEncoderGraph.build
