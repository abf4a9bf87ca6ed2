"""Graphs of the structured self-attentive sentence embedding, with its hops."""

from export.graph.writer import Value
from export.layers.attention import is_real, softmax_within
from export.layers.encoder import EncoderGraph
from export.layers.memory import AttentionOutputs
from export.layers.recurrent import RecurrentLayers
from models.architectures.self_attentive.config import SelfAttentiveConfig
from serving.bundle.manifest import AttentionKind


class SelfAttentiveGraph(EncoderGraph[SelfAttentiveConfig]):
    def encode(self, ids: Value, lengths: Value) -> Value:
        """Compute M = A H, one hop beside the other."""
        config, layers, dim = self.config, self.layers, self.config.embedding_dim
        embedded = layers.embed(ids, "embedding", config.vocab_size, dim)
        encoder = RecurrentLayers(
            layers, "encoder", config.cell, dim, config.hidden_dim, bidirectional=True
        )
        outputs, _ = encoder.encode(embedded, lengths)
        weights = self._weigh(outputs, is_real(ids, lengths))
        if self.attention_outputs.is_on:
            self.attention_outputs.put(AttentionKind.HOPS, weights.unsqueeze(1))
        pooled = weights.cast(outputs.dtype) @ outputs  # padding is added as zeros
        return pooled.reshape(0, config.vector_dim)

    def make_attention_outputs(self) -> AttentionOutputs:
        return AttentionOutputs(self.graph, num_hops=self.config.num_hops)

    def _weigh(self, outputs: Value, is_in_text: Value) -> Value:
        """Compute A, f32 [batch, hops, source]."""
        config, layers = self.config, self.layers
        dim, hops = config.attention_dim, [config.num_hops]
        keys = layers.linear(outputs, ["key"], 2 * config.hidden_dim, [dim], bias=False).tanh()
        scores = layers.linear(keys, ["score"], dim, hops, bias=False).cast("float32")
        return softmax_within(scores.transpose(0, 2, 1), is_in_text.unsqueeze(1))


build = SelfAttentiveGraph.build
