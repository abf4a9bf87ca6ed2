"""Layers that convolutional models share (Gehring et al. 2017, 3.2, 3.4 and 3.5)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import glu

HALF_VARIANCE = math.sqrt(0.5)  # a sum of two times this varies as much as each (3.4)


class GatedConvolution(nn.Module):
    """Computes v(W [x_1; ...; x_k] + b), gated linear units v([A B]) = A * sigma(B) (3.2).

    W is kept as a matrix over the k positions side by side. in_dim: of what it reads, where that
    is not what it makes.
    """

    def __init__(
        self, dim: int, kernel_size: int, dropout: float, in_dim: int | None = None
    ) -> None:
        super().__init__()
        self.kernel_size, num_read = kernel_size, kernel_size * (in_dim or dim)
        self.linear = scaled_linear(num_read, 2 * dim, variance=4 * (1 - dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x [batch, length + kernel_size - 1, in_dim] -> [batch, length, dim]."""
        length = x.shape[1] - self.kernel_size + 1
        windows = [x[:, first : first + length] for first in range(self.kernel_size)]
        return glu(self.linear(torch.cat(windows, -1)), -1)


@torch.no_grad()
def initialise_words(module: nn.Module) -> None:
    """Let words begin as their positions do, and what scores them as other layers."""
    if isinstance(module, nn.Embedding):
        module.weight.mul_(0.1)  # of N(0, 1)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=math.sqrt(1 / module.in_features))


def scaled_linear(in_dim: int, out_dim: int, variance: float = 1.0) -> nn.Linear:
    """Make outputs vary `variance` times as much as inputs: N(0, sqrt(variance / in_dim)) (3.5).

    A gated linear unit makes a quarter of it, dropout one over what it keeps.
    """
    layer = nn.Linear(in_dim, out_dim)
    nn.init.normal_(layer.weight, std=math.sqrt(variance / in_dim))
    nn.init.zeros_(layer.bias)
    return layer


def positions_table(num_rows: int, dim: int) -> nn.Parameter:
    """Draw vectors of positions."""
    return nn.Parameter(torch.randn(num_rows, dim) * 0.1)  # 3.5
