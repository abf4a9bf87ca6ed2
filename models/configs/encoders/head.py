"""Says what comes out of an encoder: a text's embedding, or scores of labels."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from models.configs.base import Part, Size

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
