"""Options of the Transformer's encoder alone: BERT and its descendants."""

from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Activation, EncoderConfig, Positive, Size
from models.configs.transformer import HasHeads, Relative

Pooling = Literal["cls", "last", "max", "mean", "mean_sqrt_length"]


class TransformerEncoderConfig(EncoderConfig, HasHeads):
    """BERT (Devlin et al. 2019): post-norm layers over words, learned positions and segments.

    num_types: number of segments, such as the two texts of a pair. distances: buckets of distances,
    for which every head has a bias of scores (MPNet, Song et al. 2020). pooling: how tokens'
    vectors become one; of several ways the vectors lie side by side. Heads that read each token's
    vector do not use it.
    """

    architecture: Literal["transformer-encoder"] = "transformer-encoder"
    num_layers: Size = 4
    ffn_dim: Size = 1024
    num_types: int = Field(default=0, ge=0, lt=2**16)
    distances: Relative | None = None
    norm_epsilon: Positive = 1e-12
    activation: Activation = "gelu"
    pooling: Annotated[tuple[Pooling, ...], Field(min_length=1, strict=False)] = ("mean",)

    @property
    def vector_dim(self) -> int:
        return self.d_model * (1 if self.head.per_token else len(self.pooling))
