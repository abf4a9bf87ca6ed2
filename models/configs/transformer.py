"""Options of the encoder-decoder Transformer."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig


class TransformerSizes(TranslationModelConfig):
    """What Transformers have in common, whatever their decoders are made of."""

    d_model: Size = 256
    num_heads: Size = 4
    num_kv_heads: Size | None = None  # None: one for each head; 1: multi-query attention
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu"] = "relu"
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("d_model", "num_heads")
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.d_model % 2:
            yield Misfit(("d_model",), f"d_model {self.d_model} must be even")

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads


class TransformerConfig(TransformerSizes):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
