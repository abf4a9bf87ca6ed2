"""Options that decoder-only language models share, with rotary position embeddings (Su et al.
2021) or without.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from models.configs.base import LanguageModelConfig, Misfit, Part, Positive, Size
from models.configs.transformer import HasHeads


class DecoderOnlyConfig(LanguageModelConfig, HasHeads):
    """Layers of causal attention and feed-forward networks."""

    num_layers: Size = 4
    ffn_dim: Size = 512
    window: Size | None = None  # how many positions attention sees, its own included; None: all
    tied_embeddings: bool = True

    def window_of(self, layer: int) -> int | None:
        """Tell the window of one layer: all have the same."""
        return self.window

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.window is not None and self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Misfit(("window", "context_length"), message)


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
