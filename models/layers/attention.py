"""Multi-head attention. Keys and values may be shared by groups of heads or by all.

Vaswani et al. 2017, 3.2; Shazeer 2019; Ainslie et al. 2023.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from models.layers.basic import apply_cap

KeysValues = tuple[Tensor, Tensor]  # each [batch, kv_heads, length, head_dim]
Past = tuple[Tensor, ...]  # what a layer keeps of earlier positions; empty: none


class Attention(nn.Module):
    """Computes softmax(Q K^T / sqrt(head_dim)) V over heads.

    num_kv_heads: fewer than `num_heads` is GQA, 1 is MQA. head_dim: None for d_model / num_heads.
    cap: scores are limited smoothly to -cap..cap.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        bias: bool,
        head_dim: int | None = None,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.cap = num_heads, num_kv_heads, cap
        self.head_dim = head_dim or d_model // num_heads
        self.query = nn.Linear(d_model, num_heads * self.head_dim, bias=bias)
        self.key = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.output = nn.Linear(num_heads * self.head_dim, d_model, bias=bias)

    def queries(self, x: Tensor) -> Tensor:
        """Return queries [batch, heads, length, head_dim] of x [batch, length, d_model]."""
        return self._heads(self.query(x), self.num_heads)

    def keys_values(self, x: Tensor) -> KeysValues:
        """Return keys and values [batch, kv_heads, length, head_dim] of x [batch, length,
        d_model].
        """
        return (
            self._heads(self.key(x), self.num_kv_heads),
            self._heads(self.value(x), self.num_kv_heads),
        )

    def attend(self, query: Tensor, keys_values: KeysValues, mask: Tensor) -> Tensor:
        """Return what `query` finds in the values, with heads joined: [batch, length, d_model].

        mask: broadcast to [batch, heads, query, key]. Of bools, True allows attention; floats are
        added to the scores.
        """
        keys, values = (self._repeat(x) for x in keys_values)
        attention = fused_attention if self.is_fused(query) else self._attention
        context = attention(query, keys, values, mask)
        return self.output(context.transpose(1, 2).flatten(2))

    def is_fused(self, query: Tensor) -> bool:
        """Return whether torch's fused kernel computes scores and softmax. It does on GPUs. For
        sentences on a CPU the operations written out here train 3 to 7 times faster.
        """
        return query.is_cuda and self.cap is None

    def _attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        scores = self.scores(query, keys)
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, float("-inf")) if is_bool else scores + mask
        return self.weights(scores).to(values.dtype) @ values

    def weights(self, scores: Tensor) -> Tensor:
        """Return the shares of all keys, [batch, heads, query, key]."""
        return scores.softmax(-1)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores of every query and key, [batch, heads, query, key]."""
        return apply_cap(query @ keys.transpose(-1, -2) / math.sqrt(self.head_dim), self.cap)

    def _repeat(self, x: Tensor) -> Tensor:
        """Repeat key and value heads for every query head."""
        groups = self.num_heads // self.num_kv_heads
        return x if groups == 1 else x.repeat_interleave(groups, dim=1)

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)


def fused_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Return torch's fused attention, all of [batch, heads, length, head_dim], cast to one type."""
    kind = values.dtype
    mask = mask if mask.dtype == torch.bool else mask.to(kind)
    return scaled_dot_product_attention(query.to(kind), keys.to(kind), values, attn_mask=mask)


def append(past: Past, new: KeysValues) -> KeysValues:
    """Return past keys and values with those of new positions after them."""
    if not past:
        return new
    keys, values = (torch.cat(parts, dim=2) for parts in zip(past, new, strict=True))
    return keys, values


def causal_mask(start: int, end: int, window: int | None, device: torch.device) -> Tensor:
    """Return which positions start..end-1 may attend to: bool [end - start, end]. These are
    themselves and all before, or the last `window` of these, themselves included.
    """
    key = torch.arange(end, device=device)
    distance = key[start:, None] - key
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)


Tape = tuple[Tensor, Tensor]


class DotAttention(nn.Module):
    """Scores e_j = query . U h_j, and sums values weighted by softmax(e).

    query_dim: input size of the layer `query`; None: the caller makes queries. bias: of U.
    is_hard: outside training all of the weight goes to the position that has most.
    """

    def __init__(
        self,
        hidden_dim: int,
        attention_dim: int,
        query_dim: int | None = None,
        *,
        bias: bool,
        is_hard: bool = False,
    ) -> None:
        super().__init__()
        self.is_hard = is_hard
        if query_dim is not None:
            self.query = nn.Linear(query_dim, attention_dim, bias=False)
        self.key = nn.Linear(hidden_dim, attention_dim, bias=bias)

    def forward(
        self, query: Tensor, tape: Tape, is_written: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with a query [batch, attention_dim] to a tape, where the mask [batch, length] is
        true. Return the context [batch, value_dim] and the weights [batch, length].
        """
        keys, values = tape
        scores = self.scores(query, keys)
        if is_written is not None:
            scores = scores.masked_fill(~is_written, float("-inf"))
        weights = scores.softmax(-1)
        if self.is_hard and not self.training:
            weights = one_hot_of_largest(weights)
        return torch.bmm(weights[:, None].to(values.dtype), values)[:, 0], weights

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores [batch, length] of keys [batch, length, attention_dim]."""
        return torch.bmm(keys, query[:, :, None])[:, :, 0]

    def append(self, tape: Tape, hidden: Tensor, values: Tensor) -> Tape:
        """Return the tape with one more position: hidden [batch, hidden_dim], values [batch,
        value_dim].
        """
        keys, written = tape
        key = self.key(hidden)[:, None]
        return torch.cat([keys, key], 1), torch.cat([written, values[:, None]], 1)


class ScaledDotAttention(DotAttention):
    """Divides scores by sqrt(attention_dim) (Vaswani et al. 2017, 3.2.1)."""

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().scores(query, keys) / math.sqrt(query.shape[-1])


class AdditiveAttention(DotAttention):
    """Scores e_j = v^T tanh(query + U h_j)."""

    def __init__(
        self,
        hidden_dim: int,
        attention_dim: int,
        query_dim: int | None = None,
        *,
        bias: bool,
        is_hard: bool = False,
    ) -> None:
        super().__init__(hidden_dim, attention_dim, query_dim, bias=bias, is_hard=is_hard)
        self.score = nn.Linear(attention_dim, 1, bias=False)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(query[:, None] + keys)).squeeze(-1)


ATTENTIONS: dict[str, type[DotAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "scaled-dot": ScaledDotAttention,
}


def one_hot_of_largest(weights: Tensor) -> Tensor:
    """Return 1 at the largest weight of the last axis and 0 elsewhere; of equals the first."""
    best = weights.argmax(-1, keepdim=True)
    return torch.zeros_like(weights).scatter(-1, best, 1.0)


def empty_tape(like: Tensor, attention_dim: int, value_dim: int) -> Tape:
    """Return a tape without positions, with the rows and the type of `like` [batch, ...]."""
    rows = len(like)
    return like.new_zeros(rows, 0, attention_dim), like.new_zeros(rows, 0, value_dim)
