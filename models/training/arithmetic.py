"""Decides where a run computes and in which numbers, by what the machine has.

In bf16 are matrix products alone, Muon's too; weights, moments and what is saved are in fp32. So a
run may change from one to the other whenever it is started again.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # two of x86, two of ARM
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Arithmetic:
    """Has the type of matrix `products`, and a `reason` why it is that, for the log."""

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
        """Open a block in which matrix products are in that type."""
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
    """Choose a GPU where there is one, and bf16 where wanted and the device multiplies in it."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if precision == "fp32":
        return Arithmetic(device, torch.float32, "the recipe wants it")
    if _gpu_multiplies_bf16() if device.type == "cuda" else _cpu_multiplies_bf16():
        return Arithmetic(device, torch.bfloat16, "there are instructions for it")
    return Arithmetic(device, torch.float32, "there are no instructions for bf16")


def _gpu_multiplies_bf16() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _cpu_multiplies_bf16() -> bool:
    """Tell, as bf16 is emulated without instructions: a recurrent model trains 20 times slower.

    The processor must have them and oneDNN, which multiplies for torch, use them; it says that it
    does on any AVX-512, and that it does not where ONEDNN_MAX_CPU_ISA forbids.
    """
    capabilities = torch.cpu.get_capabilities()
    has_instructions = any(capabilities.get(name, False) for name in BF16_INSTRUCTIONS)
    return (
        has_instructions
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
