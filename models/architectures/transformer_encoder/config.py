"""Options of the Transformer's encoder alone: BERT and its descendants."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from models.configs.base import (
    Activation,
    Conflict,
    EncoderConfig,
    MaskedWordHead,
    Positive,
    Section,
    Size,
)
from models.configs.transformer import HasHeads, Poolings, Relative


class Disentangled(Section):
    """Scores have terms of content and position, in each layer anew (He et al. 2021, 3.1).

    Offsets on either side of a position have `num_buckets`; those beyond share the last one. With
    `max_distance` they grow with the logarithm of the distance from half of them on, as in
    DeBERTa v2. content_to_position, position_to_content: which terms there are.
    """

    kind: Literal["disentangled"] = "disentangled"
    num_buckets: int = Field(default=256, ge=2, lt=2**16)
    max_distance: Size | None = None
    content_to_position: bool = True
    position_to_content: bool = True

    @model_validator(mode="after")
    def _is_of_use(self) -> Self:
        half = self.num_buckets // 2
        if not (self.content_to_position or self.position_to_content):
            raise ValueError("content_to_position or position_to_content must be true")
        if self.max_distance is not None and self.max_distance <= half + 1:
            raise ValueError(
                f"max_distance {self.max_distance} must be more than half of"
                f" num_buckets {self.num_buckets} and one"
            )
        return self


class ConvolutionOptions(Section):
    """A convolution of the embedded text, which is added to the first layer's output, normalised
    (DeBERTa v2, He et al. 2021). kernel_size: words that it reads, as many on either side.
    """

    kernel_size: Size = 3
    activation: Literal["gelu", "relu", "tanh"] = "tanh"

    @model_validator(mode="after")
    def _has_a_middle(self) -> Self:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        return self


class TransformerEncoderConfig(EncoderConfig, HasHeads):
    """BERT (Devlin et al. 2019): post-norm layers over words, learned positions and segments.

    num_types: number of segments, such as the two texts of a pair. has_positions: whether a vector
    of each position is added. embedding_dim: of the words' vectors, which a linear layer brings to
    d_model; None: there is no such layer. distances: how scores depend on them: every head has a
    bias of each bucket (MPNet, Song et al. 2020), or each layer has vectors of each (DeBERTa).
    shared_layer: all layers have the weights of the first (ALBERT, Lan et al. 2020). pooling: how
    tokens' vectors become one; of several ways the vectors lie side by side. Heads that read each
    token's vector do not use it.
    """

    architecture: Literal["transformer-encoder"] = "transformer-encoder"
    num_layers: Size = 4
    ffn_dim: Size = 1024
    num_types: int = Field(default=0, ge=0, lt=2**16)
    has_positions: bool = True
    embedding_dim: Size | None = None
    distances: Relative | Disentangled | None = Field(default=None, discriminator="kind")
    convolution: ConvolutionOptions | None = None
    shared_layer: bool = False
    norm_epsilon: Positive = 1e-12
    activation: Activation = "gelu"
    pooling: Poolings = ("mean",)

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.num_types == 1 and not self.has_positions:
            message = "num_types 1 needs has_positions, which its vector is added to"
            yield Conflict(("num_types", "has_positions"), message)
        if self.embedding_dim is not None and isinstance(self.head, MaskedWordHead):
            message = "a head of masked words scores with the words' vectors: no embedding_dim"
            yield Conflict(("head", "embedding_dim"), message)

    @property
    def word_dim(self) -> int:
        """The size of the vectors that words, positions and segments add up to."""
        return self.embedding_dim or self.d_model

    @property
    def num_stored_layers(self) -> int:
        """The number of layers with weights of their own."""
        return 1 if self.shared_layer else self.num_layers

    @property
    def vector_dim(self) -> int:
        return self.d_model * (1 if self.head.per_token else len(self.pooling))
