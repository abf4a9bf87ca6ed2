"""Options that encoders share, and their head: a text's embedding, or scores of labels."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from models.configs.base import ArchitectureConfig, Length, Section, Size

Squashing = Literal["none", "relu", "gelu", "tanh"]


class Dense(Section):
    """A linear layer with an activation, over a text's vector."""

    dim: Size
    activation: Squashing = "tanh"
    bias: bool = True


Layers = Annotated[tuple[Dense, ...], Field(strict=False)]  # in files a list


class EmbeddingHead(Section):
    """The model puts out a text's vector, of length 1 if `normalised`."""

    task: ClassVar[str] = "embed"
    kind: Literal["embedding"] = "embedding"
    dense: Layers = ()
    normalised: bool = False


class LabelHead(Section):
    """The model scores labels; a reranker has one label.

    scores: the function that turns scores into numbers from 0 to 1, if there is one.
    """

    task: ClassVar[str] = "classify"
    kind: Literal["labels"] = "labels"
    labels: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    dense: Layers = ()
    scores: Literal["softmax", "sigmoid", "none"] = "softmax"


Head = Annotated[EmbeddingHead | LabelHead, Field(discriminator="kind")]


class EncoderConfig(ArchitectureConfig):
    """The base of models that read a text or a pair of texts and generate none."""

    max_source_tokens: Length = 512
    head: Head = EmbeddingHead()

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """The size of a text's vector that the head reads."""

    @property
    def task(self) -> str:
        return self.head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are scored; empty for embeddings."""
        return self.head.labels if isinstance(self.head, LabelHead) else ()

    @property
    def dense_dim(self) -> int:
        """The size of a text's vector after the head's dense layers."""
        return self.head.dense[-1].dim if self.head.dense else self.vector_dim
