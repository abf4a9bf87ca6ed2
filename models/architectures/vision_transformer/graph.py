"""Graphs of a vision encoder with a text decoder: `encode` reads pixels, `step` is a Transformer's.

Every picture has the same number of positions, so none is padded.
"""

import numpy as np

from export.graph.writer import Value
from export.layers.attention import SourceTokens
from export.layers.transformer import SelfAttentionGraph
from models.architectures.vision_transformer.config import VisionTransformerConfig
from serving.bundle.manifest import PIXELS


class VisionTransformerGraph(SelfAttentionGraph[VisionTransformerConfig]):
    """Decodes by layers that attend to the target so far and to the picture."""

    def write_encode(self) -> None:
        size = self.config.vision.image_size
        pixels = self.graph.input(PIXELS, "uint8", (size, size, 3))
        self.encode(pixels, self.graph.input("source_lengths", "int32", ()))

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write keys and values of pictures: levels uint8 [batch, height, width, 3]."""
        dim, target = self.config.vision.d_model, self.layers.target
        x = self._embed(ids)
        places = x.cast("float32").max(-1, keepdims=False)  # [batch, positions], for its shape
        tokens = SourceTokens(places, lengths, target)
        x = x if target.is_cuda else x.reshape(-1, dim)
        stack = SelfAttentionGraph(self.config.encoder, self.layers)
        stack.attention_outputs = self.attention_outputs
        no_biases = [None] * stack.config.encoder_layers
        self.write_memories(stack.encode_layers(x, tokens, lengths, no_biases), tokens, dim)

    def _embed(self, pixels: Value) -> Value:
        """Return the first layer's input, [batch, positions, d_model]."""
        vision, layers = self.config.vision, self.layers
        size, side = vision.patch_size, vision.image_size // vision.patch_size
        cut = pixels.reshape(-1, side, size, side, size, 3).transpose(0, 1, 3, 2, 4, 5)
        x = self._normalise_pixels(cut).reshape(-1, vision.num_patches, 3 * size**2)
        x = layers.linear(x, ["encoder.patches"], 3 * size**2, [vision.d_model], bias=True)
        name = "encoder.positions"
        table = layers.weights.take(name, vision.num_positions, vision.d_model)
        return layers.pad(x, vision.num_class_tokens, 0, axes=[1]) + layers.float_weight(
            name, table
        )

    def _normalise_pixels(self, pixels: Value) -> Value:
        """Return what the encoder reads of levels [..., 3], computed in fp32."""
        vision, graph = self.config.vision, self.graph
        deviation = np.array(vision.deviation)
        scale, shift = vision.scale / deviation, -np.array(vision.mean) / deviation
        factor = graph.weight("encoder.scale", scale.astype(np.float32))
        added = graph.weight("encoder.shift", shift.astype(np.float32))
        return (pixels.cast("float32") * factor + added).cast(self.layers.dtype)


build = VisionTransformerGraph.build
