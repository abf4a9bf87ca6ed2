"""Averages weights as they move, to validate and keep (Polyak and Juditsky 1992).

Under a learning rate that falls to zero the last weights differ little from each other; what gains
is to average while they still move.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Averages a module's parameters over about the last `share` of all steps so far."""

    def __init__(self, module: nn.Module, share: float) -> None:
        self._share = share
        self._names = [name for name, _ in module.named_parameters()]
        self._weights = [parameter.data for parameter in module.parameters()]
        self._means = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after `step` steps."""
        torch._foreach_lerp_(self._means, self._weights, 1.0 / max(1.0, self._share * step))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Open a block in which the module has the averaged weights."""
        trained = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, self._means)
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, trained)

    def state_tensors(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self._means, strict=True))

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `state_tensors` gave."""
        for name, mean in zip(self._names, self._means, strict=True):
            mean.copy_(tensors[name])  # from whatever device
