"""Makes one vector of the vectors of a text's tokens (Reimers and Gurevych 2019, 3)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models.batch import length_mask


def pool(x: Tensor, lengths: Tensor, ways: Sequence[str]) -> Tensor:
    """Pool [batch, source, dim] of `lengths` [batch]: [batch, len(ways) * dim]."""
    return torch.cat([POOLING[way](x, lengths) for way in ways], -1)


def _sum(x: Tensor, lengths: Tensor) -> Tensor:
    return (x * length_mask(lengths, x.shape[1])[..., None]).sum(1)


def _max(x: Tensor, lengths: Tensor) -> Tensor:
    is_real = length_mask(lengths, x.shape[1])[..., None]
    return x.masked_fill(~is_real, -torch.inf).amax(1)


POOLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda x, lengths: x[:, 0],
    "last": lambda x, lengths: x[torch.arange(len(x), device=x.device), lengths - 1],
    "max": _max,
    "mean": lambda x, lengths: _sum(x, lengths) / lengths[:, None],
    "mean_sqrt_length": lambda x, lengths: _sum(x, lengths) / lengths[:, None].sqrt(),
}
