"""Changes of weights whose rows are those of heads: queries, keys and values."""

import numpy as np

from export.readers.common.weights import Change
from models.safetensors import Array


def parts_apart(num_kv_heads: int, group: int) -> Change:
    """Put queries, keys and values one below the other. In the tensor the queries of a group of
    heads lie before their key and their value: [kv_heads, group + 2, head_size, ...].
    """

    def change(joined: Array) -> Array:
        by_group = joined.reshape(num_kv_heads, group + 2, -1, *joined.shape[1:])
        parts = by_group[:, :group], by_group[:, group:-1], by_group[:, -1:]
        return np.concatenate([part.reshape(-1, *joined.shape[1:]) for part in parts])

    return change


def halves(num_heads: int, head_size: int, pairs: int) -> Change:
    """Order the numbers of heads for a rotation of number i with i + pairs. In the tensor the two
    numbers of a pair are neighbours.
    """

    def change(weight: Array) -> Array:
        rows = weight.reshape(num_heads, head_size, -1)
        rotated, rest = rows[:, : 2 * pairs], rows[:, 2 * pairs :]
        ordered = np.concatenate([rotated[:, ::2], rotated[:, 1::2], rest], axis=1)
        return ordered.reshape(weight.shape)

    return change


def centred(num_heads: int, head_size: int) -> Change:
    """Take the mean away from the numbers of each head. What LayerNorm makes of a head is then what
    RMSNorm makes of it.
    """

    def change(weight: Array) -> Array:
        rows = weight.reshape(num_heads, head_size, -1)
        return (rows - rows.mean(axis=1, keepdims=True)).reshape(weight.shape)

    return change
