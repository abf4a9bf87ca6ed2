"""The batch of token ids that models are trained on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

IGNORED_LABEL = -100


@dataclass(frozen=True)
class Batch:
    """Padded ids of some examples; `source_*` is None for language models."""

    source_ids: Tensor | None  # [batch, source]
    source_lengths: Tensor | None  # [batch]
    input_ids: Tensor  # [batch, target]: what the decoder reads, beginning with <s>
    labels: Tensor  # [batch, target]: what it must predict, IGNORED_LABEL where padded

    @property
    def num_target_tokens(self) -> int:
        return int((self.labels != IGNORED_LABEL).sum())

    def to(self, device: torch.device) -> "Batch":
        """Without waiting for it, where what is copied is `pinned`."""
        return self._each(lambda x: x.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """In memory that a GPU copies from by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            None if self.source_ids is None else change(self.source_ids),
            None if self.source_lengths is None else change(self.source_lengths),
            change(self.input_ids),
            change(self.labels),
        )


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """True where a position is real: [batch] lengths -> [batch, size] bool."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def device_of(module: nn.Module) -> torch.device:
    """Where its weights are, and so where what it reads has to be."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
