"""Options of ConvS2S."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Size, TranslationModelConfig


class ConvS2SConfig(TranslationModelConfig):
    """ConvS2S (Gehring et al. 2017): gated convolutions, attention in every decoder layer."""

    architecture: Literal["convs2s"] = "convs2s"
    embedding_dim: Size = 256
    hidden_dim: Size = 256
    encoder_layers: Size = 4
    decoder_layers: Size = 3
    encoder_kernel_size: Size = 3
    decoder_kernel_size: Size = 3
    tied_embeddings: bool = True

    def conflicts(self) -> Iterator[Conflict]:
        name, size = "encoder_kernel_size", self.encoder_kernel_size
        if size % 2 == 0:
            yield Conflict((name,), f"{name} {size} must be odd: as many words left as right")
