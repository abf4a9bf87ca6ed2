"""Says what distances between positions do to scores: buckets that share a learned bias (Raffel et
al. 2020, 2.1), or slopes (Press et al. 2022, 3).
"""

import math


def linear_slopes(num_heads: int) -> list[float]:
    """Choose by how much each head lowers a score per position of distance: 2^(-8/n), 2^(-16/n),
    ..., 2^-8 for n heads. If n is no power of 2, those of the power below, and then every other
    one of the power above, as in the paper's code.
    """
    power = 2 ** int(math.log2(num_heads))
    steps = [*range(2, 2 * power + 1, 2), *range(1, 2 * (num_heads - power), 2)]
    return [2.0 ** (-4 * step / power) for step in steps]


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
