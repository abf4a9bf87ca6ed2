"""The configuration of an engine: its size and its device."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from serving.engine.runtime.machine import available_cpus

Device = Literal["auto", "cpu", "cuda"]  # auto is replaced before an engine is made


@dataclass(frozen=True)
class EngineConfig:
    """Sizes and budgets of one engine.

    slots: maximum number of rows in a batch.
    threads: threads of ONNX Runtime; defaults to the CPUs that this process may use.
    max_waiting: maximum number of waiting jobs; above it `submit` raises Overloaded. None is no
        limit.
    max_wait_seconds: longest estimated waiting time, computed from the waiting work and the recent
        throughput. `submit` raises Overloaded for a request that would wait longer than this, and
        longer than its own run time.
    timeout_seconds: timeout of requests without their own.
    max_encode_tokens: padded source tokens that are encoded before one decoding step.
    max_step_tokens: tokens that one step computes: one for each decoding row, and prompt tokens up
        to this number, but at least one chunk of them. Compared with 256, 1024 made the longest
        step four times as long, and 64 made the time to a first token five times as long, at equal
        throughput.
    prefill_chunk: prompt tokens in one run of the step graph. Compared with 64, 16 took a quarter
        more time, 128 and more took 4 % less. Only whole chunks of a prompt are cached.
    prefix_cache_bytes, encoder_cache_bytes: maximum size of the cached states of prompts and of
        sources; 0 turns the cache off. Of sound at least eight windows are cached.
    device_share: fraction of the device's memory for this engine. The number of slots is reduced to
        what fits. Not used on the CPU.
    """

    slots: int = 64
    threads: int = field(default_factory=available_cpus)
    device: Device = "cpu"
    device_share: float = 1.0
    max_waiting: int | None = None
    max_wait_seconds: float | None = None
    timeout_seconds: float | None = None
    max_encode_tokens: int = 1024
    max_step_tokens: int = 256
    prefill_chunk: int = 64
    prefix_cache_bytes: int = 256 * 2**20
    encoder_cache_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in (
            "slots",
            "threads",
            "max_encode_tokens",
            "max_step_tokens",
            "prefill_chunk",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "max_waiting",
            "max_wait_seconds",
            "prefix_cache_bytes",
            "encoder_cache_bytes",
        ):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        if not 0 < self.device_share <= 1:
            raise ValueError(f"device_share must be above 0, at most 1, not {self.device_share}")
        if self.device not in get_args(Device):
            raise ValueError(f"device must be one of {get_args(Device)}, not {self.device!r}")
