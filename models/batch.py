"""Holds the batches of token ids that models are trained on."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

IGNORED_LABEL = -100


@dataclass(frozen=True)
class Tensors:
    """Has fields of tensors, alone, in tuples or in others like it; the rest stays as it is."""

    def to(self, device: torch.device) -> Self:
        """Copy it there, without waiting where what is copied is `pinned`."""
        return self.each(lambda x: x.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """Copy it into memory that a GPU copies from by itself."""
        return self.each(Tensor.pin_memory)

    def each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Change every tensor."""
        found = {each.name: _changed(getattr(self, each.name), change) for each in fields(self)}
        return replace(self, **found)


def _changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensors):
        return value.each(change)
    if isinstance(value, tuple):
        return tuple(_changed(part, change) for part in value)
    return change(value) if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class Batch(Tensors):
    """Holds padded ids of some texts that a model learns to write."""

    input_ids: Tensor  # [batch, target]: what the model reads, beginning with <s>
    labels: Tensor  # [batch, target]: what it must predict, IGNORED_LABEL where padded

    @property
    def num_target_tokens(self) -> int:
        return int((self.labels != IGNORED_LABEL).sum())


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """Holds texts alone: what a language model learns from."""


@dataclass(frozen=True)
class FollowingBatch(LanguageBatch):
    """Holds what follows the texts of the last batch, row by row, unless all of them begin."""

    begins: bool


@dataclass(frozen=True)
class LabelBatch(Batch):
    """Holds texts that a model learns to label; labels are [batch, 1]."""

    lengths: Tensor  # [batch]


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
