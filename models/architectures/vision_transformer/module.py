"""A Vision Transformer (Dosovitskiy et al. 2021) whose vectors a Transformer's decoder attends to.

Decoders are those of captioning models, GPT-2 with cross-attention, and of TrOCR (Li et al. 2023).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.architectures.vision_transformer.config import Vision, VisionTransformerConfig
from models.layers.transformer import (
    BaseTransformer,
    EncoderLayer,
    SelfAttentionDecoderLayer,
    TransformerState,
    norm_of,
)


class VisionEncoder(nn.Module):
    """Embeds patches, and reads them with class tokens before them."""

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.vision, size = config.vision, config.vision.d_model
        self.patches = nn.Linear(3 * config.vision.patch_size**2, size)
        self.positions = nn.Parameter(torch.randn(config.vision.num_positions, size) * 0.02)
        layers = (EncoderLayer(config.encoder) for _ in range(config.encoder_layers))
        self.layers = nn.ModuleList(layers)
        self.norm = norm_of(config.encoder)

    def forward(self, pixels: Tensor) -> Tensor:
        """Read levels [batch, height, width, 3], 0 to 255. Return [batch, positions, d_model]."""
        patches = self.patches(cut(normalise_pixels(pixels, self.vision), self.vision))
        x = pad(patches, (0, 0, self.vision.num_class_tokens, 0)) + self.positions
        everything = torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
        for layer in self.layers:
            x = layer(x, everything)
        return self.norm(x)


def normalise_pixels(pixels: Tensor, vision: Vision) -> Tensor:
    """Return what the encoder reads of levels [..., 3], 0 to 255."""
    mean = torch.tensor(vision.mean, device=pixels.device)
    return (pixels.float() * vision.scale - mean) / mean.new_tensor(vision.deviation)


def cut(pixels: Tensor, vision: Vision) -> Tensor:
    """Cut [batch, height, width, 3] into patches [batch, patches, 3 * patch_size^2]."""
    size, side = vision.patch_size, vision.image_size // vision.patch_size
    patches = pixels.unflatten(2, (side, size)).unflatten(1, (side, size)).transpose(2, 3)
    return patches.flatten(3).flatten(1, 2)


class PictureDecoderLayer(SelfAttentionDecoderLayer):
    """Attends to vectors of the vision encoder's size."""

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__(config)
        attention = self.cross_attention
        dims = config.vision.d_model, attention.num_kv_heads * attention.head_dim
        attention.key = nn.Linear(*dims, bias=config.imported.biases)
        attention.value = nn.Linear(*dims, bias=config.imported.biases)


class VisionTransformer(BaseTransformer):
    """Writes a text about a picture."""

    decoder_layer = PictureDecoderLayer
    config: VisionTransformerConfig

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__(config)
        self.source_embedding = None  # there are no words to read

    def make_encoder(self, config: VisionTransformerConfig) -> VisionEncoder:
        return VisionEncoder(config)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> TransformerState:
        """Read pixels uint8 [batch, height, width, 3]; all pictures have one length."""
        memory = self.encoder(source_ids)
        source = tuple(layer.cross_attention.keys_values(memory) for layer in self.decoder.layers)
        is_real = torch.ones(1, 1, 1, memory.shape[1], dtype=torch.bool, device=memory.device)
        is_real = is_real.expand(len(memory), 1, 1, -1)
        return TransformerState(source, is_real, ((),) * len(source), num_read=0)
