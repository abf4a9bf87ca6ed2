"""What configurations with rotary position embeddings share (Su et al. 2021)."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from models.configs.base import Misfit
from models.configs.decoder_only import DecoderOnlyConfig

Frequencies = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]  # in files a list

PAIRS = 8  # that the exported attention rotates together


class RotaryConfig(DecoderOnlyConfig):
    """Queries and keys are rotated, pair by pair, as far as there are frequencies."""

    head_multiple = 2 * PAIRS  # of those that the exported attention rotates
    rope_theta: float = Field(default=10000.0, gt=0)
    rotary_frequencies: Frequencies | None = None  # radians a position; None: by rope_theta
    rotary_magnitude: float = Field(default=1.0, gt=0)  # what it stretches them by

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Of every pair that is rotated: theta^(-2i / head_size), if nothing else is said."""
        if self.rotary_frequencies is not None:
            return self.rotary_frequencies
        size = self.head_size
        return tuple(self.rope_theta ** (-i / size) for i in range(0, size, 2))

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        yield from self.odd_pairs("rotary_frequencies")

    def odd_pairs(self, field: str) -> Iterator[Misfit]:
        """More pairs than a head has, or a number that the exported attention does not take."""
        found, fields = len(getattr(self, field) or ()), (field, "head_dim", "d_model", "num_heads")
        if self.head_size % self.head_multiple:
            return  # which is said already
        if 2 * found > self.head_size:
            yield Misfit(fields, f"{field}: {found} are too many for heads of {self.head_size}")
        if found % PAIRS:
            yield Misfit((field,), f"{field}: {found} must be a multiple of {PAIRS}")
