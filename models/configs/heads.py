"""Holds what configurations with attention heads share."""

from collections.abc import Iterator

from models.configs.base import ArchitectureConfig, Misfit, Size


class HasHeads(ArchitectureConfig):
    """Vectors of d_model, mapped to heads."""

    d_model: Size = 256
    num_heads: Size = 4
    head_dim: Size | None = None  # None: d_model is cut into heads

    @property
    def head_size(self) -> int:
        """Tell how many numbers a head has."""
        return self.head_dim or self.d_model // self.num_heads

    def misfits(self) -> Iterator[Misfit]:
        if self.head_dim is None:
            yield from self.must_be_multiple("d_model", "num_heads")
