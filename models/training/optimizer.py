"""Optimizers with a learning-rate schedule, the numbers in which they compute, and averages of
weights. States are saved without pickling.

In bf16 only matrix products are computed, those of Muon too; weights, moments and files are fp32.
So a run may change from one to the other whenever it is started again.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from models.layers.roles import ParameterKind, ParameterRole, parameter_roles
from models.training.config import OptimizerConfig

BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # two of x86, two of ARM
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Arithmetic:
    """The type of matrix `products`, and the `reason` for it, for the log."""

    device: torch.device
    products: torch.dtype
    reason: str

    @property
    def name(self) -> str:
        return NAMES[self.products]

    @property
    def has_gpu(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self) -> torch.autocast | nullcontext:
        """Return a context in which matrix products have that type."""
        if self.products == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.products)

    @property
    def place(self) -> str:
        if self.has_gpu:
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {torch.get_num_threads()} threads"

    def __str__(self) -> str:
        return f"{self.name} on {self.place}: {self.reason}"


def choose_arithmetic(precision: Literal["fp32", "bf16"]) -> Arithmetic:
    """Choose a GPU if there is one, and bf16 if it is wanted and the device can multiply in it."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if precision == "fp32":
        return Arithmetic(device, torch.float32, "the recipe wants it")
    if _gpu_multiplies_bf16() if device.type == "cuda" else _cpu_multiplies_bf16():
        return Arithmetic(device, torch.bfloat16, "there are instructions for it")
    return Arithmetic(device, torch.float32, "there are no instructions for bf16")


def _gpu_multiplies_bf16() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _cpu_multiplies_bf16() -> bool:
    """Return whether the processor has instructions for bf16 and oneDNN, which multiplies for
    torch, uses them. Without instructions bf16 is emulated, and a recurrent model trains 20 times
    slower. oneDNN claims bf16 on any processor with AVX-512, and denies it if ONEDNN_MAX_CPU_ISA
    forbids it.
    """
    capabilities = torch.cpu.get_capabilities()
    has_instructions = any(capabilities.get(name, False) for name in BF16_INSTRUCTIONS)
    return (
        has_instructions
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
SMALLEST_NORM = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) in the numbers that the machine multiplies fast: orthogonal updates
    with Nesterov momentum and decoupled weight decay.

    torch's own Muon orthogonalises in bf16 everywhere; where that is emulated it took nine tenths
    of a step. In bf16 this one computes the same, bit for bit on a CPU. On a GPU all matrices of
    one shape are updated together. An update has the size of AdamW's (Liu et al. 2025, 2.2), so
    that both can share learning rate and weight decay.

    products: the type in which matrices are made orthogonal.

    In a group with `num_blocks` every parameter holds so many matrices below each other, such as
    gates; each is made orthogonal by itself.
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
        """Update the parameters of one shape."""
        gradients = [matrix.grad for matrix in matrices]
        momenta = [self._momentum(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        ahead = [block for matrix_ahead in ahead for block in matrix_ahead.chunk(num_blocks)]
        joined = ahead[0] if len(ahead) == 1 else torch.stack(ahead)
        update = orthogonalise(joined.to(self.products))
        directions = [update] if len(ahead) == 1 else update.unbind()
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
    """Group the parameters that are updated together: on a GPU all of one shape, on a CPU each
    alone.
    """
    groups: dict[Hashable, list[nn.Parameter]] = defaultdict(list)
    for number, matrix in enumerate(matrices):
        groups[matrix.shape if matrix.is_cuda else number].append(matrix)
    return list(groups.values())


def orthogonalise(matrix: Tensor) -> Tensor:
    """Return about U V^T of the singular value decomposition U S V^T: all singular values become
    about 1. Newton-Schulz iteration of fifth order, in the type of `matrix` [rows, columns] or
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


def learning_rate_scale(progress: float, warmup: float) -> float:
    """Return the factor of the learning rate: it rises linearly over the first share of a run, then
    falls linearly to zero at progress 1.
    """
    warm = min(1.0, progress / warmup) if warmup else 1.0
    return warm * max(0.0, 1.0 - progress)


class Optimizer:
    """AdamW, with Muon for the matrices of the layers if configured; clips gradients and applies
    the schedule.

    products: the type of Muon's matrix products.
    """

    def __init__(self, module: nn.Module, config: OptimizerConfig, products: torch.dtype) -> None:
        self.config = config
        self.parameters = list(module.parameters())
        by_adamw, by_muon = _groups(module, config.name == "muon")
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                by_adamw,
                lr=config.learning_rate,
                betas=config.betas,
                weight_decay=config.weight_decay,
                fused=True,
            )
        ]
        if by_muon:
            self.parts.append(Muon(by_muon, config.learning_rate, config.weight_decay, products))

    def step(self, scale: float) -> None:
        """Update the weights with `scale` times the learning rate, and clear the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.config.learning_rate * scale * group["rate"]
            part.step()
            part.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return every moment and counter by a flat name."""
        return {
            f"{part}.{index}.{key}": value
            for part, optimizer in enumerate(self.parts)
            for index, state in optimizer.state_dict()["state"].items()
            for key, value in state.items()
        }

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""
        for number, optimizer in enumerate(self.parts):
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in tensors.items():
                part, index, key = name.split(".", 2)
                if int(part) == number:
                    state.setdefault(int(index), {})[key] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _groups(module: nn.Module, use_muon: bool) -> tuple[list[dict], list[dict]]:
    """Return the parameter groups of AdamW and of Muon. Only matrices have weight decay: a bias, a
    gain or the embedding of a rare word would decay without being used.
    """
    parts = parameter_roles(module)
    by_part: dict[ParameterRole, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        by_part.setdefault(parts[name], []).append(parameter)
    matrices = [
        {"params": parameters, "num_blocks": part.num_blocks, "rate": part.rate}
        for part, parameters in by_part.items()
        if part.role is ParameterKind.MATRIX
    ]
    others = [
        {"params": parameters, "weight_decay": 0.0, "rate": part.rate}
        for part, parameters in by_part.items()
        if part.role is not ParameterKind.MATRIX
    ]
    if use_muon:
        return others, matrices
    return [*others, *matrices], []


class Average:
    """A running average of a module's parameters, over about the last `share` of all steps (Polyak
    and Juditsky 1992). With a learning rate that falls to zero the last weights differ little;
    averaging gains while they still move.
    """

    def __init__(self, module: nn.Module, share: float) -> None:
        self._share = share
        self._names = [name for name, _ in module.named_parameters()]
        self._weights = [parameter.data for parameter in module.parameters()]
        self._means = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after `step` steps."""
        torch._foreach_lerp_(self._means, self._weights, 1.0 / max(1.0, self._share * step))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context in which the module has the averaged weights."""
        trained = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, self._means)
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, trained)

    def state_tensors(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self._means, strict=True))

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""
        for name, mean in zip(self._names, self._means, strict=True):
            mean.copy_(tensors[name])  # from whatever device
