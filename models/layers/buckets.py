"""Buckets of distances between positions (Raffel et al. 2020, 2.1), for torch and for graphs."""

import math

NUM_BUCKETS = 32
FARTHEST = 128  # offsets from here on share their side's last bucket


def relative_buckets(*, bidirectional: bool) -> list[int]:
    """Of the offsets -FARTHEST..FARTHEST, each a key's position minus its query's.

    Keys ahead have half of the buckets where attention is `bidirectional`, else that of offset 0.
    """
    offsets = range(-FARTHEST, FARTHEST + 1)
    if not bidirectional:
        return [_bucket(max(-offset, 0), NUM_BUCKETS) for offset in offsets]
    half = NUM_BUCKETS // 2
    return [_bucket(abs(offset), half) + (half if offset > 0 else 0) for offset in offsets]


def _bucket(distance: int, num_buckets: int) -> int:
    """Half of the buckets are for single distances, half grow with the logarithm."""
    exact = num_buckets // 2
    if distance < exact:
        return distance
    growth = math.log(distance / exact) / math.log(FARTHEST / exact)
    return min(exact + int(growth * (num_buckets - exact)), num_buckets - 1)
