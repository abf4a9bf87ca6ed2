"""Options of ConvS2S as in its authors' own code."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from models.configs.base import Conflict, Section, Size, TranslationModelConfig


class ConvolutionLayer(Section):
    """Output size of a layer, and how many words it reads at once."""

    dim: Size
    kernel_size: Size = 3


class AttentiveConvolution(ConvolutionLayer):
    """attends: whether the layer attends to the source."""

    attends: bool = True


def _attends(layers: tuple[AttentiveConvolution, ...]) -> tuple[AttentiveConvolution, ...]:
    if not any(layer.attends for layer in layers):
        raise ValueError("one of its layers must attend")
    return layers


Encoder = Annotated[tuple[ConvolutionLayer, ...], Field(min_length=1, strict=False)]
Decoder = Annotated[
    tuple[AttentiveConvolution, ...], Field(min_length=1, strict=False), AfterValidator(_attends)
]


class FConvConfig(TranslationModelConfig):
    """fairseq's `fconv` (Gehring et al. 2017): each layer has its own size, and attends before its
    input is added.
    """

    architecture: Literal["fconv"] = "fconv"
    embedding_dim: Size = 256
    readout_dim: Size = 256
    encoder: Encoder = (ConvolutionLayer(dim=256),) * 4
    decoder: Decoder = (AttentiveConvolution(dim=256),) * 3
    source_vocab_size: Size | None = None  # None: that of the target, vocab_size
    tied_embeddings: bool = True

    def conflicts(self) -> Iterator[Conflict]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
            if self.source_vocab_size is not None:
                yield from self.must_be_equal("source_vocab_size", "vocab_size", "tied_embeddings")

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size
