"""Graphs of the Transformer: `encode` writes cross-attention's keys and values, `step` appends its
own.
"""

from export.graph.writer import Value
from export.layers.attention import self_attention
from export.layers.basic import Layers
from export.layers.memory import DecoderAttentionWeights
from export.layers.positions import target_biases
from export.layers.transformer import BaseTransformerGraph
from models.architectures.transformer.config import TransformerConfig
from serving.bundle.manifest import AttentionKind, StateKind


class TransformerGraph(BaseTransformerGraph[TransformerConfig]):
    """Keeps keys and values of the target so far in place, and appends to them."""

    def __init__(self, config: TransformerConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.past_states = [
            self.heads.states("self", StateKind.APPEND, layer)
            for layer in range(config.decoder_layers)
        ]

    def open(self) -> None:
        super().open()
        self.total_lengths = self.graph.input("total_lengths", "int32", ())
        self.biases = target_biases(self.positions, self.past_lengths)
        if self.attention_outputs.is_on:
            self.attended = self.attention_outputs.num_attended()

    def read_target(self, x: Value, layer: int) -> Value:
        graph, name = self.graph, f"decoder.layers.{layer}.self_attention"
        key_state, value_state = self.past_states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self.queries_keys_values(self.before_sublayer(x, f"{name}_norm"), name)
        capacity = self.config.max_target_tokens
        heads, bias = self.heads, self.biases[layer]
        found, keys, values = self_attention(qkv, past, self.total_lengths, capacity, heads, bias)
        if self.attention_outputs.is_on:
            weights_of = DecoderAttentionWeights(self.past_lengths, self.attended, heads, bias)
            self.attention_outputs.add(
                AttentionKind.DECODER, self._weights_if_asked(weights_of, qkv, keys)
            )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self.after_sublayer(x, self.join_heads(found, name), f"{name}_norm")

    def _weights_if_asked(
        self, weights_of: DecoderAttentionWeights, qkv: Value, keys: Value
    ) -> Value:
        """Compute weights only if any are asked for: requests that only want cross-attention do not
        wait for them.
        """
        [weights] = self.graph.branch(
            weights_of.attended > 0,
            "float32",
            lambda: [weights_of.weights(qkv, keys)],
            lambda: [weights_of.none(qkv)],
            1,
        )
        return weights


build = TransformerGraph.build
