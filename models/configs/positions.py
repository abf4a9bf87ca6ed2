"""Lists how a Transformer tells positions apart: by its words or by biases of its scores."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.configs.base import Part, Size


class Sinusoidal(Part):
    """Adds sines and cosines of the position (Vaswani et al. 2017, 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"


class Learned(Part):
    """Adds a vector that was learned for the position."""

    kind: Literal["learned"] = "learned"


class Relative(Part):
    """Adds a learned bias to scores, by how far apart two positions are (Raffel et al. 2020).

    Distances share `num_buckets`; those from `max_distance` on share the last.
    """

    kind: Literal["relative"] = "relative"
    num_buckets: int = Field(default=32, ge=4, lt=2**16, multiple_of=2)
    max_distance: Size = 128

    @model_validator(mode="after")
    def _reaches_farther_than_exact_buckets(self) -> Self:
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                f"max_distance {self.max_distance} must be more than half of"
                f" num_buckets {self.num_buckets}"
            )
        return self


class Linear(Part):
    """Lowers scores in proportion to distance, each head by a slope of its own that is not learned
    (ALiBi, Press et al. 2022); in the encoder to both sides alike.
    """

    kind: Literal["linear"] = "linear"


class NoPositions(Part):
    """Tells nothing: what reads the source takes it as a bag of words."""

    kind: Literal["none"] = "none"


Added = Annotated[Sinusoidal | Learned | NoPositions, Field(discriminator="kind")]
Positions = Annotated[
    Sinusoidal | Learned | Relative | Linear | NoPositions, Field(discriminator="kind")
]
