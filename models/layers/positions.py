"""How stacks of attention layers know the order of tokens.

Vectors may be added to the input: sinusoids (Vaswani et al. 2017, 3.5), learned vectors (Gehring
et al. 2017) or a learned linear function of the position. A bias may be added to the scores:
learned by distance (Shaw et al. 2018; here that of T5, Raffel et al. 2020, 2.1) or in proportion to
it (Press et al. 2022). Queries and keys may be rotated (Su et al. 2021).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.layers.position_tables import linear_slopes, relative_buckets, rotations, sinusoids

Array = np.ndarray[Any, np.dtype[Any]]


class Positions(nn.Module):
    """The base of the others: changes neither a stack's input nor its masks."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Return x [batch, length, dim] of positions from `start` on, as the layers read it."""
        return x

    def mask_scores(self, mask: Tensor, start: int, end: int) -> Tensor:
        """Return the mask [..., end - start or 1, end] of queries start..end-1 with a bias added,
        if any.
        """
        return mask


class SinusoidalPositions(Positions):
    """Adds sinusoids, which are not saved with the weights."""

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        table = torch.from_numpy(sinusoids(num_positions, dim)).float()
        self.register_buffer("weight", table, persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.weight[start : start + x.shape[1]]


class LearnedPositions(Positions):
    """Adds learned vectors."""

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_positions, dim) * 0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.weight[start : start + x.shape[1]]


class AffinePositions(Positions):
    """Adds a * position + b, with learned vectors a and b, the rows of `weight`."""

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.weight = nn.Parameter(torch.randn(2, dim) * 0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        slope, offset = self.weight
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        return x + (positions / self.num_positions)[:, None] * slope + offset


class RelativePositions(Positions):
    """Adds a bias to each head's scores, learned per bucket of distances.

    num_heads: of one layer, if the bias is the same in all, else of all layers together.
    window: how far positions attend to each side; None: everywhere.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int,
        max_distance: int,
        *,
        bidirectional: bool,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.max_distance, self.window = max_distance, window
        self.weight = nn.Parameter(torch.randn(num_buckets, num_heads) * 0.02)
        buckets = relative_buckets(num_buckets, max_distance, bidirectional=bidirectional)
        self.register_buffer("buckets", torch.tensor(buckets), persistent=False)

    def mask_scores(self, mask: Tensor, start: int, end: int) -> Tensor:
        key = torch.arange(end, device=mask.device)
        offset = key - key[start:, None]
        if self.window is not None:
            mask = mask & (offset.abs() <= self.window)
        farthest = self.max_distance
        buckets = self.buckets[offset.clamp(-farthest, farthest) + farthest]
        bias = self.weight[buckets].permute(2, 0, 1)  # [heads, query, key]
        return bias.masked_fill(~mask, float("-inf"))


class LinearPositions(Positions):
    """Lowers scores by distance times a slope of each head (Press et al. 2022, 3)."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        slopes = torch.tensor(linear_slopes(num_heads))
        self.register_buffer("slopes", slopes[:, None, None], persistent=False)

    def mask_scores(self, mask: Tensor, start: int, end: int) -> Tensor:
        key = torch.arange(end, device=mask.device)
        bias = -self.slopes * (key - key[start:, None]).abs()  # [heads, query, key]
        return bias.masked_fill(~mask, float("-inf"))


class DisentangledPositions(nn.Module):
    """Adds what a query says of its key's relative position, and a key of its query's (He et al.
    2021, 3.1): products with learned vectors of each bucket of offsets.

    buckets: of all offsets, see `disentangled_buckets`; in all there are `num_buckets`. has_keys,
    has_queries: whether there are vectors for queries to meet, and for keys.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        num_buckets: int,
        buckets: Sequence[int],
        *,
        has_keys: bool,
        has_queries: bool,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        sizes = num_buckets, num_heads * head_dim
        self.keys = nn.Embedding(*sizes) if has_keys else None
        self.queries = nn.Embedding(*sizes) if has_queries else None
        self.register_buffer("buckets", torch.tensor(buckets), persistent=False)

    def mask_scores(self, mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return what is added to scores [batch, heads, length, length] of queries and keys [batch,
        heads, length, head_dim]: -inf where a mask [batch, 1, 1, length] is false.
        """
        length = query.shape[2]
        position = torch.arange(length, device=query.device)
        offset = position[:, None] - position + len(self.buckets) // 2
        buckets = self.buckets[offset].expand(*query.shape[:2], length, length)
        bias = query.new_zeros(())
        if self.keys is not None:
            bias = bias + self._products(query, self.keys).gather(-1, buckets)
        if self.queries is not None:
            products = self._products(key, self.queries).transpose(-1, -2)
            bias = bias + products.gather(-2, buckets)
        return bias.masked_fill(~mask, float("-inf"))

    def _products(self, x: Tensor, vectors: nn.Embedding) -> Tensor:
        """Return [batch, heads, length, buckets] of x [batch, heads, length, head_dim]."""
        return x @ vectors.weight.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0)


class Rotary(nn.Module):
    """Rotates pairs (i, i + pairs) of a vector's numbers by angles that grow with its position.

    frequencies: of each pair, in radians per position. Numbers beyond the pairs stay unchanged.
    magnitude: factor of rotated numbers (Peng et al. 2023, YaRN, 3.4).
    """

    def __init__(
        self, num_positions: int, frequencies: Sequence[float], magnitude: float = 1.0
    ) -> None:
        super().__init__()
        tables = rotations(num_positions, frequencies, magnitude)
        for name, table in zip(("cos", "sin"), tables, strict=True):
            self.register_buffer(name, torch.from_numpy(table).float(), persistent=False)

    def forward(self, x: Tensor, start: int) -> Tensor:
        """Rotate x [batch, heads, length, head_dim] of positions from `start` on."""
        positions = slice(start, start + x.shape[2])
        cos, sin = self.cos[positions], self.sin[positions]
        size = self.cos.shape[1]
        first, second, rest = x.split((size, size, x.shape[-1] - 2 * size), -1)
        rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return torch.cat([rotated.to(x.dtype), rest], -1)
