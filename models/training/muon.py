"""Runs Muon (Jordan et al. 2024) in the numbers that the machine multiplies fast.

torch's own orthogonalises in bf16 everywhere; where that is emulated, nine tenths of a step went
there. In bf16 this one computes the same, bit for bit on a CPU. A GPU takes all matrices of a shape
at once, as one of them does not keep it busy.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
SMALLEST_NORM = 1e-7


class Muon(torch.optim.Optimizer):
    """Makes momentum after Nesterov orthogonal, with decoupled weight decay.

    An update is as large as AdamW's would be (Liu et al. 2025, 2.2), so that both can share their
    learning rate and decay. products: the type that matrices are made orthogonal in. Of a group
    with `num_blocks` every parameter holds so many matrices below each other, each made orthogonal
    by itself: gates have nothing to do with each other.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float,
        products: torch.dtype,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "num_blocks": 1})
        self.products = products

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        assert closure is None, "gradients are made before"
        for group in self.param_groups:
            ready = [matrix for matrix in group["params"] if matrix.grad is not None]
            for matrices in stacks(ready):
                self._update(matrices, group["lr"], group["weight_decay"], group["num_blocks"])

    def _update(
        self, matrices: Sequence[nn.Parameter], lr: float, weight_decay: float, num_blocks: int
    ) -> None:
        """Update those of one shape."""
        gradients = [matrix.grad for matrix in matrices]
        momenta = [self._momentum(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        ahead = [block for each in ahead for block in each.chunk(num_blocks)]
        joined = ahead[0] if len(ahead) == 1 else torch.stack(ahead)
        made = orthogonalise(joined.to(self.products))
        directions = [made] if len(ahead) == 1 else made.unbind()
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        blocks = [block for matrix in matrices for block in matrix.chunk(num_blocks)]
        for block, direction in zip(blocks, directions, strict=True):
            block.add_(direction, alpha=-lr * 0.2 * math.sqrt(max(block.shape)))

    def _momentum(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix.grad)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def stacks(matrices: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group those that are updated together: on a GPU all of one shape, on a CPU each alone."""
    found: dict[Hashable, list[nn.Parameter]] = defaultdict(list)
    for number, matrix in enumerate(matrices):
        found[matrix.shape if matrix.is_cuda else number].append(matrix)
    return list(found.values())


def orthogonalise(matrix: Tensor) -> Tensor:
    """Find U V^T of the singular value decomposition U S V^T: singular values of about 1.

    Newton and Schulz's iteration, to the fifth power, in the type of `matrix` [rows, columns] or
    [matrices, rows, columns].
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[-2] > matrix.shape[-1]
    is_one = matrix.dim() == 2
    add_product = torch.addmm if is_one else torch.baddbmm
    x = matrix.mT if is_tall else matrix  # the smaller of the two products
    norm = x.norm() if is_one else x.norm(dim=(-2, -1), keepdim=True)
    x = x / norm.clamp(min=SMALLEST_NORM)
    for _ in range(NUM_ITERATIONS):
        square = x @ x.mT
        x = add_product(x, add_product(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
