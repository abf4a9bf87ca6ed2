"""Smooths labels (Szegedy et al. 2016) and computes a cross-entropy's gradient with its value.

torch's own goes over [tokens, vocabulary] about ten times in fp32; here a slice of rows stays in
the cache of a CPU while loss and gradient are made from it. On a GPU slices are larger: as large
as keeps it busy, and still a part of what all tokens in fp32 would take.
"""

from typing import Any

import torch
from torch import Tensor

ROWS_PER_SLICE = 64
NUMBERS_PER_SLICE_ON_GPU = 2**26


class SmoothedCrossEntropy(torch.autograd.Function):
    """Averages -sum_v q(v) log p(v) over tokens, q = (1 - smoothing) onehot + smoothing / V."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """Take logits [tokens, vocab] in any float type, labels [tokens] -> scalar in fp32."""
        gradient = torch.empty_like(logits)
        total = torch.zeros((), device=logits.device)
        size = rows_per_slice(logits)
        for start in range(0, len(labels), size):
            rows = slice(start, start + size)
            total += _slice_loss(logits[rows], labels[rows], smoothing, gradient[rows])
        ctx.save_for_backward(gradient)
        ctx.scale = 1.0 / max(1, len(labels))
        return total * ctx.scale

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(upstream[0] * ctx.scale), None, None


def rows_per_slice(logits: Tensor) -> int:
    return max(NUMBERS_PER_SLICE_ON_GPU // logits.shape[1], 1) if logits.is_cuda else ROWS_PER_SLICE


def _slice_loss(logits: Tensor, labels: Tensor, smoothing: float, gradient: Tensor) -> Tensor:
    """Sum the losses of some rows; writes d loss / d logits = p - q into `gradient`."""
    log_p = logits.float().log_softmax(-1)
    mine = labels[:, None]
    at_label = log_p.gather(1, mine)
    p = log_p.exp()
    p.sub_(smoothing / logits.shape[1])
    p.scatter_add_(1, mine, torch.full_like(at_label, smoothing - 1.0))
    gradient.copy_(p)
    return -((1.0 - smoothing) * at_label.sum() + smoothing * log_p.mean(-1).sum())
