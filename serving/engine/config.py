"""How big and where an engine runs. What it runs is the bundle's business."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]


CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def available_cpus(cpu_max: Path = CGROUP_CPU_MAX) -> int:
    """CPUs that this process may use: by affinity, and by its container's quota (cgroup v2)."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return min(count, max(int(quota) // int(period), 1))
    except (OSError, ValueError):  # no cgroup v2, or "max": no quota
        return count


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
