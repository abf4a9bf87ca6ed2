"""The GPT-2-shaped language model: learned positions, LayerNorm, GELU, biases."""

from export.families.language_models.decoder_only import DecoderOnlyStep, decoder_only
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import Value
from export.layers.attention import Heads, count
from export.layers.feed_forward import feed_forward
from export.layers.heads import head_layout
from models.configs.language_models.gpt2 import GPT2Config
from serving.bundle.manifest import Precision


def build(config: GPT2Config, weights: Weights, precision: Precision) -> ExportedModel:
    return decoder_only(_Step, config, weights, precision)


class _Step(DecoderOnlyStep):
    config: GPT2Config
    has_qkv_bias = has_mixing_bias = True

    def heads_of(self, layer: int) -> Heads:
        config = self.config
        sizes = (config.num_heads, config.num_heads, head_layout(config.head_size))
        return Heads(*sizes, self.layers.dtype, window=config.window)

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """Padding may go beyond the last position."""
        op, graph, name = self.graph.op, self.graph, "positions.weight"
        shape = (self.config.context_length, self.config.d_model)
        table = self.layers.weights.take(name, *shape)
        before = op.Unsqueeze(op.Sub(past_lengths, graph.constant(1, "int32")), graph.ints(1))
        positions = op.Add(count(graph, ids), before)
        clipped = op.Min(positions, graph.constant(self.config.context_length - 1, "int32"))
        return op.Add(super().embed(ids, past_lengths), self.layers.lookup(clipped, name, table))

    def feed_forward(self, x: Value, name: str) -> Value:
        sizes, activation = (self.config.d_model, self.config.ffn_dim), self.config.activation
        return feed_forward(self.layers, x, name, sizes, activation, is_gated=False, bias=True)

    def norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model, self.config.norm_epsilon)
