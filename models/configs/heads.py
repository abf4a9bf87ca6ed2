"""What configurations with attention heads share."""

from collections.abc import Iterator
from typing import ClassVar

from models.configs.base import ArchitectureConfig, Misfit, Size


class HasHeads(ArchitectureConfig):
    """Vectors of d_model, mapped to heads. Exported attention wants heads of certain sizes only."""

    head_multiple: ClassVar[int] = 8
    d_model: Size = 256
    num_heads: Size = 4
    head_dim: Size | None = None  # None: d_model is cut into heads

    @property
    def head_size(self) -> int:
        """How many numbers a head has."""
        return self.head_dim or self.d_model // self.num_heads

    def misfits(self) -> Iterator[Misfit]:
        if self.head_dim is not None:
            yield from self._odd_heads(("head_dim",), f"head_dim {self.head_dim}")
            return
        yield from self.must_be_multiple("d_model", "num_heads")
        if self.d_model % self.num_heads == 0:
            sizes = f"d_model {self.d_model} / num_heads {self.num_heads} = {self.head_size}"
            yield from self._odd_heads(("d_model", "num_heads"), sizes)

    def _odd_heads(self, fields: tuple[str, ...], sizes: str) -> Iterator[Misfit]:
        if self.head_size % self.head_multiple:
            yield Misfit(fields, f"{sizes} must be a multiple of {self.head_multiple}")
