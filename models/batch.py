"""Holds the batches of token ids that models are trained on."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor, nn

IGNORED_LABEL = -100


@dataclass(frozen=True)
class Batch:
    """Holds padded ids of some texts that a model learns to write."""

    input_ids: Tensor  # [batch, target]: what the model reads, beginning with <s>
    labels: Tensor  # [batch, target]: what it must predict, IGNORED_LABEL where padded

    @property
    def num_target_tokens(self) -> int:
        return int((self.labels != IGNORED_LABEL).sum())

    def to(self, device: torch.device) -> Self:
        """Copy it there, without waiting where what is copied is `pinned`."""
        return self._each(lambda x: x.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """Copy it into memory that a GPU copies from by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(
            self, **{each.name: change(getattr(self, each.name)) for each in fields(self)}
        )


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """Holds texts alone: what a language model learns from."""


@dataclass(frozen=True)
class TranslationBatch(Batch):
    """Holds texts and the sources that they translate."""

    source_ids: Tensor  # [batch, source]
    source_lengths: Tensor  # [batch]


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Tell where a position is real: [batch] lengths -> [batch, size] bool."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def device_of(module: nn.Module) -> torch.device:
    """Tell where its weights are, and so where what it reads has to be."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
