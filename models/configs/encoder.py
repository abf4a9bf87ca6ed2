"""Options that encoders share, and their head: a text's embedding, or scores of labels."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from models.configs.base import ArchitectureConfig, Length, Part, Size

Squashing = Literal["none", "relu", "gelu", "tanh"]


class Dense(Part):
    """Maps a text's vector to one of `dim`."""

    dim: Size
    activation: Squashing = "tanh"
    bias: bool = True


Layers = Annotated[tuple[Dense, ...], Field(strict=False)]  # in files a list


class EmbeddingHead(Part):
    """Puts the vector out, of length 1 where `normalised`."""

    task: ClassVar[str] = "embed"
    kind: Literal["embedding"] = "embedding"
    dense: Layers = ()
    normalised: bool = False


class LabelHead(Part):
    """Scores labels, a reranker only one.

    scores: what makes numbers of 0 to 1 of them, where anything does.
    """

    task: ClassVar[str] = "classify"
    kind: Literal["labels"] = "labels"
    labels: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    dense: Layers = ()
    scores: Literal["softmax", "sigmoid", "none"] = "softmax"


Head = Annotated[EmbeddingHead | LabelHead, Field(discriminator="kind")]


class EncoderConfig(ArchitectureConfig):
    """Reads a text or a pair of texts, and writes none."""

    max_source_tokens: Length = 512
    head: Head = EmbeddingHead()

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """Tell how large the vector of a text is that the head reads."""

    @property
    def task(self) -> str:
        return self.head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """Name what is scored; of embeddings nothing."""
        return self.head.labels if isinstance(self.head, LabelHead) else ()

    @property
    def dense_dim(self) -> int:
        """Tell how large it is after the head's dense layers."""
        return self.head.dense[-1].dim if self.head.dense else self.vector_dim
