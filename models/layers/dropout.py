"""Dropout (Srivastava et al. 2014)."""

import torch
from torch import Tensor, nn

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
        kept = bits >= int((self.probability - 0.5) * 2**_BITS)
        return kept.to(x.dtype).mul_(1 / (1 - self.probability))
