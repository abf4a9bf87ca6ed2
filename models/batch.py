"""Batches of token ids for training."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

IGNORED_LABEL = -100


@dataclass(frozen=True)
class TensorFields:
    """Base class whose fields are tensors, tuples of tensors, further `Tensors`, or other values,
    which stay unchanged.
    """

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device. The call does not wait for copies from pinned memory."""
        return self.map_tensors(lambda x: x.to(device, non_blocking=True))

    def pin_memory(self) -> Self:
        """Return a copy in pinned memory, from which a GPU copies by itself."""
        return self.map_tensors(Tensor.pin_memory)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with a function applied to every tensor."""
        values = {
            field.name: _map_value(getattr(self, field.name), change) for field in fields(self)
        }
        return replace(self, **values)


def _map_value(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, TensorFields):
        return value.map_tensors(change)
    if isinstance(value, tuple):
        return tuple(_map_value(part, change) for part in value)
    return change(value) if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class TargetBatch(TensorFields):
    """Padded ids of texts that a model learns to generate."""

    input_ids: Tensor  # [batch, target]: what the model reads, beginning with <s>
    labels: Tensor  # [batch, target]: what it must predict, IGNORED_LABEL where padded

    @property
    def num_target_tokens(self) -> int:
        return int((self.labels != IGNORED_LABEL).sum())


@dataclass(frozen=True)
class LanguageBatch(TargetBatch):
    """Texts for a language model."""


@dataclass(frozen=True)
class FollowingBatch(LanguageBatch):
    """Texts that continue those of the previous batch, row by row, unless all of them are new."""

    begins: bool


@dataclass(frozen=True)
class LabelBatch(TargetBatch):
    """Texts and their labels [batch, 1], or those of their masked words [batch, length]."""

    lengths: Tensor  # [batch]


@dataclass(frozen=True)
class TranslationBatch(TargetBatch):
    """Target texts and their sources."""

    source_ids: Tensor  # [batch, source]
    source_lengths: Tensor  # [batch]


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Return which positions are not padding: lengths [batch] -> bool [batch, size]."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's weights, where its inputs must be."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
