"""Puts distances between positions into buckets (Raffel et al. 2020, 2.1)."""

import math


def relative_buckets(num_buckets: int, max_distance: int, *, bidirectional: bool) -> list[int]:
    """Find those of offsets -max_distance..max_distance, each a key's position minus its query's.

    Offsets beyond share their side's last bucket. Keys ahead have half of the buckets where
    attention is `bidirectional`, else that of offset 0.
    """
    offsets = range(-max_distance, max_distance + 1)
    if not bidirectional:
        return [_bucket(max(-offset, 0), num_buckets, max_distance) for offset in offsets]
    half = num_buckets // 2
    return [
        _bucket(abs(offset), half, max_distance) + (half if offset > 0 else 0) for offset in offsets
    ]


def _bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """Give single distances half of the buckets; the others grow with the logarithm."""
    exact = num_buckets // 2
    if distance < exact:
        return distance
    growth = math.log(distance / exact) / math.log(max_distance / exact)
    return min(exact + int(growth * (num_buckets - exact)), num_buckets - 1)
