"""The batch of token ids that models are trained on."""

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
        return Batch(
            None if self.source_ids is None else self.source_ids.to(device),
            None if self.source_lengths is None else self.source_lengths.to(device),
            self.input_ids.to(device),
            self.labels.to(device),
        )


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """True where a position is real: [batch] lengths -> [batch, size] bool."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def device_of(module: nn.Module) -> torch.device:
    """Where its weights are, and so where what it reads has to be."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
