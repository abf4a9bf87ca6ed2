"""Joins optimizers and a learning-rate schedule, to be saved without pickling."""

import torch
from torch import Tensor, nn

from models.layers.roles import ParameterRole, Role, parameter_roles
from models.training.config import OptimizerConfig
from models.training.muon import Muon


def learning_rate_scale(progress: float, warmup: float) -> float:
    """Warm up linearly over the first share of a run, then decay linearly to zero at progress 1."""
    warm = min(1.0, progress / warmup) if warmup else 1.0
    return warm * max(0.0, 1.0 - progress)


class Optimizer:
    """Runs AdamW, with Muon for the layers' matrices when asked; clips, schedules, saves.

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
        """Update by the gradients at `scale` times the learning rate; clears them."""
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
        """Put back what `state_tensors` gave."""
        for number, optimizer in enumerate(self.parts):
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in tensors.items():
                part, index, key = name.split(".", 2)
                if int(part) == number:
                    state.setdefault(int(index), {})[key] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _groups(module: nn.Module, use_muon: bool) -> tuple[list[dict], list[dict]]:
    """Group parameters for AdamW and for Muon. Only matrices decay: a bias, a gain or the row
    of a rare word would be forgotten for nothing.
    """
    parts = parameter_roles(module)
    by_part: dict[ParameterRole, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        by_part.setdefault(parts[name], []).append(parameter)
    matrices = [
        {"params": parameters, "num_blocks": part.num_blocks, "rate": part.rate}
        for part, parameters in by_part.items()
        if part.role is Role.MATRIX
    ]
    others = [
        {"params": parameters, "weight_decay": 0.0, "rate": part.rate}
        for part, parameters in by_part.items()
        if part.role is not Role.MATRIX
    ]
    if use_muon:
        return others, matrices
    return [*others, *matrices], []
