"""Options of the encoder-decoder Transformer."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig
from models.configs.heads import HasHeads


class TransformerSizes(TranslationModelConfig, HasHeads):
    """What Transformers have in common, whatever their decoders are made of."""

    num_kv_heads: Size | None = None  # None: one for each head; 1: multi-query attention
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu"] = "relu"
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads


class TransformerConfig(TransformerSizes):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
