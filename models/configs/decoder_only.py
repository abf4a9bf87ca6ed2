"""Options that decoder-only language models share, with rotary position embeddings (Su et al.
2021) or without.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from models.configs.base import Conflict, LanguageModelConfig, Positive, Section, Size
from models.configs.transformer import HasHeads


class DecoderOnlyConfig(LanguageModelConfig, HasHeads):
    """The base of decoder-only models: layers of causal attention and feed-forward networks."""

    num_layers: Size = 4
    ffn_dim: Size = 512
    window: Size | None = None  # last positions that are attended to, the own included
    tied_embeddings: bool = True

    def window_of(self, layer: int) -> int | None:
        """Return the window of one layer. All layers have the same unless a subclass says
        otherwise.
        """
        return self.window

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.window is not None and self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Conflict(("window", "context_length"), message)


Frequencies = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]  # in files a list


class RotaryImports(Section):
    """Rotary frequencies of models whose positions were rescaled, as a table of the final values.

    rotary_frequencies: of each pair, in radians per position; None: computed from rope_theta.
    rotary_magnitude: factor that rotated queries and keys are multiplied by.
    """

    rotary_frequencies: Frequencies | None = None
    rotary_magnitude: Positive = 1.0


class RotaryConfig(DecoderOnlyConfig):
    """Rotates the pairs of queries and keys for which there are frequencies."""

    rope_theta: Positive = 10000.0
    imported: RotaryImports = RotaryImports()

    @property
    def frequencies(self) -> tuple[float, ...]:
        """The frequency of every rotated pair, by default theta^(-2i / head_size)."""
        if self.imported.rotary_frequencies is not None:
            return self.imported.rotary_frequencies
        size = self.head_size
        return tuple(self.rope_theta ** (-i / size) for i in range(0, size, 2))

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        is_whole = self.head_dim is not None or self.d_model % self.num_heads == 0
        if self.imported.rotary_frequencies is None and is_whole and self.head_size % 2:
            message = f"heads of {self.head_size} cannot be cut into pairs"
            yield Conflict(("head_dim", "d_model", "num_heads"), message)
        yield from self.excess_pairs("rotary_frequencies")

    def excess_pairs(self, field: str) -> Iterator[Conflict]:
        """Yield a conflict if a table has more pairs than a head."""
        found = len(getattr(self.imported, field) or ())
        fields = ("imported", "head_dim", "d_model", "num_heads")
        if 2 * found > self.head_size:
            yield Conflict(
                fields, f"imported.{field}: {found} are too many for heads of {self.head_size}"
            )
