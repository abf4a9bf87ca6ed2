"""Options that recurrent models share: cells, sizes, scaled embeddings and attention."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import (
    ArchitectureConfig,
    Conflict,
    LanguageModelConfig,
    Positive,
    Section,
    Size,
    TranslationModelConfig,
)

Cell = Literal["rnn", "lstm", "gru", "gru-reset-before", "mut1", "mut2", "mut3"]


class HasScaledEmbeddings(ArchitectureConfig):
    """Embeddings that are multiplied by a scale before a cell reads them.

    embedding_scale: None: sqrt(embedding_dim). A table that is tied to the output begins with a
    standard deviation of 1 / sqrt(embedding_dim). That suits the logits, but is too small an input
    for a cell. Imported weights have a scale of 1.
    """

    embedding_dim: Size = 256
    embedding_scale: Positive | None = None

    @property
    def scale_of_embeddings(self) -> float:
        scale = self.embedding_scale
        return math.sqrt(self.embedding_dim) if scale is None else scale


class RecurrentConfig(TranslationModelConfig, HasScaledEmbeddings):
    """An encoder and a decoder of one kind of cell; see `models.layers.equations`.

    source_vocab_size: None: vocab_size, the target's.
    """

    cell: Cell = "gru"
    hidden_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True
    source_vocab_size: Size | None = None

    def conflicts(self) -> Iterator[Conflict]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
            if self.source_vocab_size is not None:
                yield from self.must_be_equal("source_vocab_size", "vocab_size", "tied_embeddings")

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size


class Global(Section):
    """Attention to the whole source (Luong et al. 2015, 3.1)."""

    kind: Literal["global"] = "global"


class LocalM(Section):
    """Attention to `window` positions on both sides of the decoder's own position (3.2, D there).
    With 0 the t-th target word attends to the t-th source word alone.
    """

    kind: Literal["local-m"] = "local-m"
    window: Annotated[int, Field(ge=0, lt=2**31)]


class LocalP(Section):
    """Attention to `window` positions on both sides of a position that the model predicts (3.2)."""

    kind: Literal["local-p"] = "local-p"
    window: Size


class Additive(Section):
    """Additive attention of size `dim` over all of a text so far (Bahdanau et al. 2015)."""

    dim: Size


SourceAttention = Annotated[Global | LocalM | LocalP, Field(discriminator="kind")]


class RecurrentLanguageModelConfig(LanguageModelConfig, HasScaledEmbeddings):
    """Layers of cells over embedded tokens. The readout has the embedding's size."""

    cell: Cell = "gru"
    hidden_dim: Size = 512
    num_layers: Size = 1
    tied_embeddings: bool = True
