"""Options of encoders that rotate: ModernBERT, NomicBERT, and decoders that embed texts."""

from typing import Literal

from models.configs.base import EmbeddingHead, EncoderConfig, TextHead
from models.configs.rotary_encoder import RotaryStackConfig
from models.configs.transformer import Poolings


class RotaryEncoderConfig(EncoderConfig, RotaryStackConfig):
    """ModernBERT (Warner et al. 2024): rotations, windows, gated feed-forward networks, norms
    before sublayers.
    """

    architecture: Literal["rotary-encoder"] = "rotary-encoder"
    pooling: Poolings = ("mean",)
    head: TextHead = EmbeddingHead()

    @property
    def vector_dim(self) -> int:
        return self.d_model * len(self.pooling)
