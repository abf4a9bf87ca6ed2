"""Attends by many heads, whose keys and values may be shared by groups or by all.

Vaswani et al. 2017, 3.2; Shazeer 2019; Ainslie et al. 2023.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

KeysValues = tuple[Tensor, Tensor]  # each [batch, kv_heads, length, head_dim]
Past = tuple[Tensor, ...]  # what a layer keeps of what it has read; empty: nothing yet


class Attention(nn.Module):
    """Computes softmax(Q K^T / sqrt(head_dim)) V over heads.

    num_kv_heads: fewer than `num_heads` is GQA, 1 is MQA. head_dim: None for d_model / num_heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        bias: bool,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = head_dim or d_model // num_heads
        self.query = nn.Linear(d_model, num_heads * self.head_dim, bias=bias)
        self.key = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.output = nn.Linear(num_heads * self.head_dim, d_model, bias=bias)

    def queries(self, x: Tensor) -> Tensor:
        """Map [batch, length, d_model] -> [batch, heads, length, head_dim]."""
        return self._heads(self.query(x), self.num_heads)

    def keys_values(self, x: Tensor) -> KeysValues:
        """Map [batch, length, d_model] -> keys and values, [batch, kv_heads, length, head_dim]."""
        return (
            self._heads(self.key(x), self.num_kv_heads),
            self._heads(self.value(x), self.num_kv_heads),
        )

    def attend(self, query: Tensor, keys_values: KeysValues, mask: Tensor) -> Tensor:
        """Attend from `query` and bring the heads together: -> [batch, length, d_model].

        `mask`, broadcast to [batch, heads, query, key], is bool, True where attention is allowed,
        or float and added to the scores.
        """
        keys, values = (self._repeat(x) for x in keys_values)
        attention = fused_attention if self.is_fused(query) else self._attention
        context = attention(query, keys, values, mask)
        return self.output(context.transpose(1, 2).flatten(2))

    def is_fused(self, query: Tensor) -> bool:
        """Tell whether torch's one kernel does what `scores` and the softmax do.

        It does on GPUs: for sentences on a CPU what is written out here trains 3-7x faster.
        """
        return query.is_cuda

    def _attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        scores = self.scores(query, keys)
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, float("-inf")) if is_bool else scores + mask
        return scores.softmax(-1).to(values.dtype) @ values

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Tell how well each query fits each key, [batch, heads, query, key]."""
        return query @ keys.transpose(-1, -2) / math.sqrt(self.head_dim)

    def _repeat(self, x: Tensor) -> Tensor:
        """Give every query head its key or value head."""
        groups = self.num_heads // self.num_kv_heads
        return x if groups == 1 else x.repeat_interleave(groups, dim=1)

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)


def fused_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend, all of [batch, heads, length, head_dim], to be of one type, by a mask as above."""
    kind = values.dtype
    mask = mask if mask.dtype == torch.bool else mask.to(kind)
    return scaled_dot_product_attention(query.to(kind), keys.to(kind), values, attn_mask=mask)


def append(past: Past, new: KeysValues) -> KeysValues:
    """Put the keys and values of new positions behind those before them."""
    if not past:
        return new
    keys, values = (torch.cat(parts, dim=2) for parts in zip(past, new, strict=True))
    return keys, values


def causal_mask(start: int, end: int, window: int | None, device: torch.device) -> Tensor:
    """Say what positions start..end-1 may look at: [end - start, end] bool.

    That is themselves and all before, or the `window` last of these, themselves included.
    """
    key = torch.arange(end, device=device)
    distance = key[start:, None] - key
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)
