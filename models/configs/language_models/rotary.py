"""Holds what configurations with rotary position embeddings share (Su et al. 2021)."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from models.configs.base import Misfit
from models.configs.language_models.decoder_only import DecoderOnlyConfig

Frequencies = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]  # in files a list


class RotaryConfig(DecoderOnlyConfig):
    """Queries and keys are rotated, pair by pair, as far as there are frequencies."""

    rope_theta: float = Field(default=10000.0, gt=0)
    rotary_frequencies: Frequencies | None = None  # radians a position; None: by rope_theta
    rotary_magnitude: float = Field(default=1.0, gt=0)  # what it stretches them by

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Compute the frequency of every rotated pair: theta^(-2i / head_size), if nothing else is
        said.
        """
        if self.rotary_frequencies is not None:
            return self.rotary_frequencies
        size = self.head_size
        return tuple(self.rope_theta ** (-i / size) for i in range(0, size, 2))

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        is_whole = self.head_dim is not None or self.d_model % self.num_heads == 0
        if self.rotary_frequencies is None and is_whole and self.head_size % 2:
            message = f"heads of {self.head_size} cannot be cut into pairs"
            yield Misfit(("head_dim", "d_model", "num_heads"), message)
        yield from self.excess_pairs("rotary_frequencies")

    def excess_pairs(self, field: str) -> Iterator[Misfit]:
        """More of them than a head has."""
        found, fields = len(getattr(self, field) or ()), (field, "head_dim", "d_model", "num_heads")
        if 2 * found > self.head_size:
            yield Misfit(fields, f"{field}: {found} are too many for heads of {self.head_size}")
