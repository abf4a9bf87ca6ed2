"""Embeddings and output layers, tied or apart."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, silu

from models.configs.base import HasWords
from models.configs.transformer import GateLimits
from models.layers.equations import apply_gate

_BITS = 16  # so a probability is kept to 1/65536


class Dropout(nn.Module):
    """Sets each feature to zero with a probability, and scales the others so that sums stay.

    On CPUs torch draws 53 bits for each feature, which takes a tenth of a training step. Here four
    features share one draw of 64 bits.

    probability: of being dropped, 0 <= p < 1.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return features with some dropped; in evaluation the features unchanged."""
        if not (self.training and self.probability):
            return x
        if x.is_cuda:
            return nn.functional.dropout(x, self.probability)
        return x * self._scales(x)

    def _scales(self, x: Tensor) -> Tensor:
        """Return 0 for dropped features and 1 / (1 - p) for the others."""
        draws = torch.empty(-(-x.numel() * _BITS // 64), dtype=torch.int64, device=x.device)
        draws.random_(-(2**63), 2**63 - 1)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        is_kept = bits >= int((self.probability - 0.5) * 2**_BITS)
        return is_kept.to(x.dtype).mul_(1 / (1 - self.probability))


class VocabularyLayers(nn.Module):
    """Embeds words and scores the next word.

    Tied, one table `embedding` does both (Press and Wolf 2017), also for source words. Otherwise
    `output` scores, and source and target each have an embedding.

    source_size: number of source words; None: there is no source, or it shares the target's table.
    output_dim: size of what is scored, if it is not the embeddings'. scale: factor of embeddings.
    cap: logits are limited smoothly to -cap..cap.
    """

    config: Any  # of the architecture

    def __init__(
        self,
        config: HasWords,
        dim: int,
        *,
        source_size: int | None = None,
        output_dim: int | None = None,
        scale: float = 1.0,
        has_bias: bool = False,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.config, size = config, config.vocab_size
        self.is_tied, self.scale, self.cap = config.tied_embeddings, scale, cap
        self.has_one_table = self.is_tied or source_size is None
        if self.has_one_table:
            self.embedding = nn.Embedding(size, dim)
        else:
            self.source_embedding = nn.Embedding(source_size, dim)
            self.target_embedding = nn.Embedding(size, dim)
        if not self.is_tied:
            self.output = nn.Linear(output_dim or dim, size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(size)) if has_bias else None

    @property
    def _target_table(self) -> nn.Embedding:
        return self.embedding if self.has_one_table else self.target_embedding

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings [..., dim] of target ids [...]."""
        return self._target_table(ids) * self.scale

    def embed_source(self, ids: Tensor) -> Tensor:
        """Return embeddings [..., dim] of source ids [...]."""
        table = self.embedding if self.has_one_table else self.source_embedding
        return table(ids) * self.scale

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits [..., size] of vectors [..., output_dim]."""
        scoring = self._target_table if self.is_tied else self.output
        return apply_cap(linear(hidden, scoring.weight, self.output_bias), self.cap)


def apply_cap(x: Tensor, cap: float | None) -> Tensor:
    """Limit x smoothly to -cap..cap (Gemma Team 2024, 2); None: leave it unchanged."""
    return x if cap is None else cap * torch.tanh(x / cap)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "relu2": lambda x: relu(x).square(),
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),  # GPT-2's
    "swish": silu,
}


class FeedForward(nn.Module):
    """Computes down(activation(up(x))); gated: down(activation(gate(x)) * up(x))."""

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        activation: str,
        *,
        is_gated: bool = False,
        bias: bool = True,
        limits: GateLimits | None = None,
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, ffn_dim, bias=bias) if is_gated else None
        self.up = nn.Linear(d_model, ffn_dim, bias=bias)
        self.down = nn.Linear(ffn_dim, d_model, bias=bias)
        self.activation, self.limits = ACTIVATIONS[activation], limits

    def forward(self, x: Tensor) -> Tensor:
        parts = [layer(x) for layer in (self.gate, self.up) if layer is not None]
        if self.limits is not None:
            gate, up = parts
            parts = [gate.clamp(max=self.limits.gate), up.clamp(*self.limits.up)]
        return self.down(apply_gate(self.activation, *parts))
