"""Multi-head, multi-query and grouped-query attention.

Vaswani et al. 2017, 3.2; Shazeer 2019; Ainslie et al. 2023.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

KeyValue = tuple[Tensor, Tensor]  # each [batch, kv_heads, length, head_dim]


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(head_dim)) V over heads; `num_kv_heads` < `num_heads` is GQA, 1 MQA.

    head_dim: None for d_model / num_heads.
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
        """[batch, length, d_model] -> [batch, heads, length, head_dim]."""
        return self._heads(self.query(x), self.num_heads)

    def keys_values(self, x: Tensor) -> KeyValue:
        """[batch, length, d_model] -> keys and values, each [batch, kv_heads, length, head_dim]."""
        return (
            self._heads(self.key(x), self.num_kv_heads),
            self._heads(self.value(x), self.num_kv_heads),
        )

    def attend(self, query: Tensor, kv: KeyValue, mask: Tensor) -> Tensor:
        """Attend from `query` to `kv` and mix the heads: -> [batch, length, d_model].

        `mask`, broadcast to [batch, heads, query, key], is bool, True where attention is allowed,
        or float and added to the scores.
        """
        keys, values = (self._repeat(x) for x in kv)
        mix = fused_attention if self.is_fused(query) else self._attention
        mixed = mix(query, keys, values, mask)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def is_fused(self, query: Tensor) -> bool:
        """Whether torch's one kernel does what `score` and the softmax do. On GPUs: for sentences
        on a CPU what is written out here trains 3-7x faster.
        """
        return query.is_cuda

    def _attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        scores = self.score(query, keys)
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, float("-inf")) if is_bool else scores + mask
        return scores.softmax(-1).to(values.dtype) @ values

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """How well each query fits each key, [batch, heads, query, key], before the softmax."""
        return query @ keys.transpose(-1, -2) / math.sqrt(self.head_dim)

    def _repeat(self, kv: Tensor) -> Tensor:
        """Give every query head its key or value head."""
        groups = self.num_heads // self.num_kv_heads
        return kv if groups == 1 else kv.repeat_interleave(groups, dim=1)

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)


def fused_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """All of [batch, heads, length, head_dim], of one type; a mask as `Attention.attend` has it."""
    kind = values.dtype
    mask = mask if mask.dtype == torch.bool else mask.to(kind)
    return scaled_dot_product_attention(query.to(kind), keys.to(kind), values, attn_mask=mask)


def append(cache: KeyValue | None, kv: KeyValue) -> KeyValue:
    """The cache with the keys and values of new positions at its end."""
    if cache is None:
        return kv
    return torch.cat([cache[0], kv[0]], dim=2), torch.cat([cache[1], kv[1]], dim=2)


def causal_mask(start: int, end: int, window: int | None, device: torch.device) -> Tensor:
    """What positions start..end-1 may look at: [end - start, end] bool.

    That is themselves and all before, or the `window` last of these, themselves included.
    """
    key = torch.arange(end, device=device)
    distance = key[start:, None] - key
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)
