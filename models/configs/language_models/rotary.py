"""Holds what configurations with rotary position embeddings share (Su et al. 2021)."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from models.configs.base import Misfit, Part, Positive
from models.configs.language_models.decoder_only import DecoderOnlyConfig

Frequencies = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]  # in files a list


class RotaryImports(Part):
    """Rotations that scaling has changed, as one table of what they came to.

    rotary_frequencies: radians a position, of each pair; None: by rope_theta.
    rotary_magnitude: what it stretches them by.
    """

    rotary_frequencies: Frequencies | None = None
    rotary_magnitude: Positive = 1.0


class RotaryConfig(DecoderOnlyConfig):
    """Queries and keys are rotated, pair by pair, as far as there are frequencies."""

    rope_theta: Positive = 10000.0
    imported: RotaryImports = RotaryImports()

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Compute the frequency of every rotated pair: theta^(-2i / head_size), if nothing else is
        said.
        """
        if self.imported.rotary_frequencies is not None:
            return self.imported.rotary_frequencies
        size = self.head_size
        return tuple(self.rope_theta ** (-i / size) for i in range(0, size, 2))

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        is_whole = self.head_dim is not None or self.d_model % self.num_heads == 0
        if self.imported.rotary_frequencies is None and is_whole and self.head_size % 2:
            message = f"heads of {self.head_size} cannot be cut into pairs"
            yield Misfit(("head_dim", "d_model", "num_heads"), message)
        yield from self.excess_pairs("rotary_frequencies")

    def excess_pairs(self, field: str) -> Iterator[Misfit]:
        """More of them than a head has."""
        found = len(getattr(self.imported, field) or ())
        fields = ("imported", "head_dim", "d_model", "num_heads")
        if 2 * found > self.head_size:
            yield Misfit(
                fields, f"imported.{field}: {found} are too many for heads of {self.head_size}"
            )
