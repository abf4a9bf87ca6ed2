"""Graphs of Whisper: `encode` reads a log-mel spectrogram, `step` is a Transformer's.

Every window of sound has the same number of frames, so none is padded.
"""

from export.graph.writer import Value
from export.layers.attention import SourceTokens, positions_from_zero
from export.layers.basic import ACTIVATIONS, Layers
from export.layers.convolutions import neighbours
from export.layers.transformer import SelfAttentionGraph
from models.architectures.whisper.config import WhisperConfig
from serving.bundle.manifest import FEATURES


class WhisperGraph(SelfAttentionGraph[WhisperConfig]):
    """Decodes by layers that attend to the target so far and to the sound."""

    tokens_at_once = "tokens"

    def __init__(self, config: WhisperConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.alignment_heads = config.alignment_heads

    def write_encode(self) -> None:
        audio = self.config.audio
        features = self.graph.input(FEATURES, "float32", (audio.num_mels, audio.num_frames))
        self.encode(features, self.graph.input("source_lengths", "int32", ()))

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write keys and values of sound: features f32 [batch, mels, frames]."""
        config, layers = self.config, self.layers
        name, dim = "encoder.positions.weight", config.d_model
        table = layers.weights.take(name, config.max_source_tokens, dim)
        x = self._convolve(ids) + layers.float_weight(name, table)
        places = x.cast("float32").max(-1, keepdims=False)  # [batch, positions], for its shape
        tokens = SourceTokens(places, lengths, layers.target)
        x = x if layers.target.is_cuda else x.reshape(-1, dim)
        no_biases = [None] * config.encoder_layers
        self.write_memories(self.encode_layers(x, tokens, lengths, no_biases), tokens, dim)

    def _convolve(self, features: Value) -> Value:
        """Return [batch, frames / 2, d_model]. The second convolution moves by two frames: it reads
        pairs of frames beside the last frame of the pair before.
        """
        layers, dim, audio = self.layers, self.config.d_model, self.config.audio
        frames = features.cast(layers.dtype).transpose(0, 2, 1)
        x = self._linear(neighbours(layers, frames, 3), 0, 3 * audio.num_mels)
        pairs = x.reshape(0, audio.num_positions, 2 * dim)
        before = layers.pad(pairs[:, :-1, dim:], 1, 0, axes=[1])
        return self._linear(layers.op.Concat(before, pairs, axis=-1), 1, 3 * dim)

    def _linear(self, x: Value, number: int, in_dim: int) -> Value:
        """Apply a convolution to frames side by side [..., in_dim]: [..., d_model]."""
        names = [f"encoder.convolutions.{number}"]
        return ACTIVATIONS["gelu"](
            self.layers.linear(x, names, in_dim, [self.config.d_model], bias=True)
        )

    def add_positions(self, embedded: Value) -> Value:
        """Add those of the target to embedded tokens [batch, tokens, d_model]."""
        positions = positions_from_zero(self.ids) + self.past_lengths.unsqueeze(1)
        return self.positions[0].add_source(embedded, positions)

    def last_token(self, x: Value) -> Value:
        """Return the vector of each row's last token, [batch, d_model]."""
        return self.layers.last_position(x, self.past_lengths, self.total_lengths)


build = WhisperGraph.build
