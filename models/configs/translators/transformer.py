"""Options of the encoder-decoder Transformer."""

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import Misfit, Size, TranslationModelConfig
from models.configs.heads import HasHeads

Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]


class TransformerSizes(TranslationModelConfig, HasHeads):
    """Holds what Transformers have in common, whatever their decoders are made of."""

    source_vocab_size: Size | None = None  # None: that of the target, vocab_size
    num_kv_heads: Size | None = None  # None: one for each head; 1: multi-query attention
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    num_buckets: int = Field(default=32, ge=4, lt=2**16, multiple_of=2)  # of relative positions
    max_distance: Size = 128  # from where on they share a bucket
    norm: Literal["pre", "post"] = "pre"
    norm_type: Literal["layer", "rms"] = "layer"
    norm_epsilon: float = Field(default=1e-5, gt=0)
    embedding_norm: bool = False  # of what enters the encoder and the decoder
    final_norm: bool | None = None  # of what leaves them; None: where `norm` is "pre"
    activation: Activation = "relu"
    gated_ffn: bool = False
    biases: bool = True  # of attention and feed-forward layers
    embedding_scale: float | None = Field(default=None, gt=0)  # None: sqrt(d_model)
    output_bias: bool = False
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.tied_embeddings and self.source_vocab_size is not None:
            yield from self.must_be_equal(
                "source_vocab_size", "vocab_size", "one embedding for source and target"
            )
        yield from self._misfits_of_distances()

    def _misfits_of_distances(self) -> Iterator[Misfit]:
        for field in ("num_buckets", "max_distance"):
            value = getattr(self, field)
            default = type(self).model_fields[field].default
            if self.positions != "relative" and value != default:
                message = f"{field} {value} needs relative positions, found {self.positions}"
                yield Misfit((field, "positions"), message)
        if self.max_distance <= self.num_buckets // 2:
            message = (
                f"max_distance {self.max_distance} must be more than half of"
                f" num_buckets {self.num_buckets}"
            )
            yield Misfit(("max_distance", "num_buckets"), message)

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size

    @property
    def scale_of_embeddings(self) -> float:
        return math.sqrt(self.d_model) if self.embedding_scale is None else self.embedding_scale

    @property
    def has_final_norm(self) -> bool:
        return self.norm == "pre" if self.final_norm is None else self.final_norm


class TransformerConfig(TransformerSizes):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
