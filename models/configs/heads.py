"""What configurations with attention heads share."""

from collections.abc import Iterator
from typing import ClassVar

from models.configs.base import ArchitectureConfig, Misfit, Size


class HasHeads(ArchitectureConfig):
    """Vectors of d_model, cut into heads. Exported attention wants heads of certain sizes only."""

    head_multiple: ClassVar[int] = 8
    d_model: Size = 256
    num_heads: Size = 4

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("d_model", "num_heads")
        if self.d_model % self.num_heads == 0 and self.head_dim % self.head_multiple:
            sizes = f"d_model {self.d_model} / num_heads {self.num_heads} = {self.head_dim}"
            message = f"{sizes} must be a multiple of {self.head_multiple}"
            yield Misfit(("d_model", "num_heads"), message)
