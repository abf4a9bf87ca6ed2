"""How big and where an engine runs. What it runs is the bundle's business."""

import os
from dataclasses import dataclass, field
from typing import Literal

Device = Literal["cpu", "cuda"]


def available_cpus() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class EngineConfig:
    """Sizes and budgets of one engine.

    slots: most rows in one batch.
    threads: of ONNX Runtime; defaults to the CPUs this process may use.
    max_waiting: accepted requests that have no slot yet; beyond it `submit` raises Overloaded.
    max_encode_tokens: padded source tokens encoded before one decoding step.
    max_prefill_tokens: prompt tokens prefilled before one decoding step.
    prefill_chunk: most prompt tokens of one run of the step graph.
    """

    slots: int = 64
    threads: int = field(default_factory=available_cpus)
    device: Device = "cpu"
    max_waiting: int = 4096
    max_encode_tokens: int = 1024
    max_prefill_tokens: int = 1024
    prefill_chunk: int = 256

    def __post_init__(self) -> None:
        for name in (
            "slots",
            "threads",
            "max_encode_tokens",
            "max_prefill_tokens",
            "prefill_chunk",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_waiting < 0:
            raise ValueError(f"max_waiting must not be negative, got {self.max_waiting}")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', not {self.device!r}")
