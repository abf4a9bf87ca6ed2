"""Options of the encoder-decoder Transformer."""

import math
from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Part, Positive, Size, TranslationModelConfig
from models.configs.heads import HasHeads
from models.configs.norm import Norm
from models.configs.positions import Positions, Sinusoidal

Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]


class TransformerImports(Part):
    """Options of BART, Marian, T5 and what OpenNMT-py and fairseq train."""

    embedding_norm: bool = False  # of what enters the encoder and the decoder
    final_norm: bool | None = None  # of what leaves them; None: where norms are before sublayers
    embedding_scale: Positive | None = None  # None: sqrt(d_model)
    biases: bool = True  # of attention and feed-forward layers
    output_bias: bool = False


class TransformerSizes(TranslationModelConfig, HasHeads):
    """Holds what Transformers have in common, whatever their decoders are made of."""

    source_vocab_size: Size | None = None  # None: that of the target, vocab_size
    num_kv_heads: Size | None = None  # None: one for each head; 1: multi-query attention
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Positions = Sinusoidal()
    norm: Norm = Norm()
    activation: Activation = "relu"
    gated_ffn: bool = False
    tied_embeddings: bool = True
    imported: TransformerImports = TransformerImports()

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.tied_embeddings and self.source_vocab_size is not None:
            yield from self.must_be_equal(
                "source_vocab_size", "vocab_size", "one embedding for source and target"
            )

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size

    @property
    def scale_of_embeddings(self) -> float:
        scale = self.imported.embedding_scale
        return math.sqrt(self.d_model) if scale is None else scale

    @property
    def has_final_norm(self) -> bool:
        wanted = self.imported.final_norm
        return self.norm.place == "pre" if wanted is None else wanted


class TransformerConfig(TransformerSizes):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
