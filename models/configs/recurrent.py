"""Options that recurrent models share: cells, sizes, scaled embeddings and attention."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import (
    ArchitectureConfig,
    LanguageModelConfig,
    Misfit,
    Part,
    Positive,
    Size,
    TranslationModelConfig,
)

Cell = Literal["rnn", "lstm", "gru", "gru-reset-before", "mut1", "mut2", "mut3"]


class HasScaledEmbeddings(ArchitectureConfig):
    """embedding_scale: what embedded words are multiplied by; None: sqrt(embedding_dim).

    A table that is tied to the output begins with a deviation of 1 / sqrt(embedding_dim), which
    makes logits of a right size and words that are too faint for a cell to hear. Weights that were
    trained elsewhere have a scale of 1.
    """

    embedding_dim: Size = 256
    embedding_scale: Positive | None = None

    @property
    def scale_of_embeddings(self) -> float:
        scale = self.embedding_scale
        return math.sqrt(self.embedding_dim) if scale is None else scale


class RecurrentConfig(TranslationModelConfig, HasScaledEmbeddings):
    """Encoder and decoder made of one kind of cell; `models.layers.equations` has them.

    source_vocab_size: None: that of the target, vocab_size.
    """

    cell: Cell = "gru"
    hidden_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True
    source_vocab_size: Size | None = None

    def misfits(self) -> Iterator[Misfit]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
            if self.source_vocab_size is not None:
                yield from self.must_be_equal("source_vocab_size", "vocab_size", "tied_embeddings")

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size


class Global(Part):
    """Looks at the whole source (Luong et al. 2015, 3.1)."""

    kind: Literal["global"] = "global"


class LocalM(Part):
    """Looks at `window` positions to both sides of where the decoder is (3.2, D there); with 0, at
    the t-th word of the source alone when it writes the t-th of its own.
    """

    kind: Literal["local-m"] = "local-m"
    window: Annotated[int, Field(ge=0, lt=2**31)]


class LocalP(Part):
    """Looks at `window` positions to both sides of where it predicts to look (3.2)."""

    kind: Literal["local-p"] = "local-p"
    window: Size


class Additive(Part):
    """Scores through tanh, of `dim` numbers, over all of a text so far (Bahdanau et al. 2015)."""

    dim: Size


SourceAttention = Annotated[Global | LocalM | LocalP, Field(discriminator="kind")]


class RecurrentLanguageModelConfig(LanguageModelConfig, HasScaledEmbeddings):
    """Layers of cells over embedded tokens; what they yield is read out at the embedding's size."""

    cell: Cell = "gru"
    hidden_dim: Size = 512
    num_layers: Size = 1
    tied_embeddings: bool = True
