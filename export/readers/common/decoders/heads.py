"""Changes of weights whose rows are those of heads: queries, keys and values."""

import numpy as np

from export.readers.common.weights import Change
from models.configs.transformer import RotaryConfig
from models.safetensors import Array


def split_query_key_value(num_kv_heads: int, group: int) -> Change:
    """Put queries, keys and values one below the other. In the tensor the queries of a group of
    heads lie before their key and their value: [kv_heads, group + 2, head_size, ...].
    """

    def change(joined: Array) -> Array:
        by_group = joined.reshape(num_kv_heads, group + 2, -1, *joined.shape[1:])
        parts = by_group[:, :group], by_group[:, group:-1], by_group[:, -1:]
        return np.concatenate([part.reshape(-1, *joined.shape[1:]) for part in parts])

    return change


def deinterleave_heads(head_size: int, pairs: int) -> Change:
    """Order the numbers of heads for a rotation of number i with i + pairs. In the tensor the two
    numbers of a pair are neighbours.
    """
    order = [*range(0, 2 * pairs, 2), *range(1, 2 * pairs, 2), *range(2 * pairs, head_size)]

    def change(weight: Array) -> Array:
        heads = weight.reshape(-1, head_size, *weight.shape[1:])
        return heads[:, order].reshape(weight.shape)

    return change


def deinterleave_queries_and_keys(config: RotaryConfig) -> dict[str, Change]:
    """Return the changes of weights in models that rotate neighbours."""
    change = deinterleave_heads(config.head_size, len(config.frequencies))
    return {f"layers.*.attention.{part}": change for part in ("query", "key")}


def centre_heads(head_size: int) -> Change:
    """Take the mean away from the numbers of each head. What LayerNorm makes of a head is then what
    RMSNorm makes of it.
    """

    def change(weight: Array) -> Array:
        rows = weight.reshape(-1, head_size, *weight.shape[1:])
        return (rows - rows.mean(axis=1, keepdims=True)).reshape(weight.shape)

    return change
