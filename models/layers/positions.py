"""Positions: sinusoids (Vaswani et al. 2017, 3.5) and rotary embedding (Su et al. 2021)."""

import math

import torch
from torch import Tensor


def sinusoids(num_positions: int, dim: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos(...): [positions, dim]."""
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    table = torch.empty(num_positions, dim, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table.float()


def rotary_tables(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin of position * theta^(-2i/head_dim): each [positions, head_dim / 2]."""
    rate = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(num_positions, dtype=torch.float64)[:, None] * rate
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + head_dim/2) of x [batch, heads, length, head_dim].

    `cos` and `sin` are the tables' rows of these positions: [length, head_dim / 2].
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
