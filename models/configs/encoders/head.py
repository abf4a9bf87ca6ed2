"""Says what comes out of an encoder: a text's embedding, or scores of labels."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.configs.base import Size

Squashing = Literal["none", "relu", "gelu", "tanh"]


class Section(BaseModel):
    """Is part of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Dense(Section):
    """Maps a text's vector to one of `dim`."""

    dim: Size
    activation: Squashing = "tanh"
    bias: bool = True


Layers = Annotated[tuple[Dense, ...], Field(strict=False)]  # in files a list


class EmbeddingHead(Section):
    """Puts the vector out, of length 1 where `normalised`."""

    task: Literal["embed"] = "embed"
    dense: Layers = ()
    normalised: bool = False


class LabelHead(Section):
    """Scores labels, a reranker only one.

    scores: what makes numbers of 0 to 1 of them, where anything does.
    """

    task: Literal["classify"] = "classify"
    labels: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    dense: Layers = ()
    scores: Literal["softmax", "sigmoid", "none"] = "softmax"


Head = Annotated[EmbeddingHead | LabelHead, Field(discriminator="task")]
