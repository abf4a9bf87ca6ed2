"""The size of an engine and the device it runs on."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from serving.engine.runtime.machine import available_cpus

Device = Literal["auto", "cpu", "cuda"]  # auto is settled before anything runs


@dataclass(frozen=True)
class EngineConfig:
    """Holds the sizes and budgets of one engine.

    slots: most rows in one batch.
    threads: of ONNX Runtime; defaults to the CPUs this process may use.
    max_waiting: jobs that wait for slots; beyond it `submit` raises Overloaded. None is no limit.
    max_wait_seconds: how long others may hold a request up before it has a slot, by what they ask
        and the rate at which that was done lately; beyond it, and beyond what the request takes
        itself, `submit` raises Overloaded too.
    timeout_seconds: of requests that say none themselves.
    max_encode_tokens: padded source tokens encoded before one decoding step.
    max_step_tokens: tokens that one step computes: one for each row that decodes, and prompt tokens
        as far as that leaves room, but at least one chunk of them. 1024 made the longest step four
        times as long as 256, 64 the time to a first token five times, at equal throughput.
    prefill_chunk: prompt tokens of one run of the step graph. 16 cost a quarter more time than 64,
        128 and more 4 % less; only whole chunks of a prompt are worth keeping for another.
    prefix_cache_bytes, encoder_cache_bytes: most that states kept of prompts and of sources may
        take; 0 keeps none.
    speculation: whether rows may take several tokens of one run, where what came before has
        foreseen them and measurements on the way say that it saves time. Their bytes stay the same.
    device_share: how much of a device's memory is this engine's; slots are fewer where they do not
        fit. On the CPU of no meaning.
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
    speculation: bool = False

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
