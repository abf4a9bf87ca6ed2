"""Statistics of an engine and of its steps, for metrics and benchmarks."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from serving.engine.generation import Generation


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The current load of an engine.

    num_slots: number of rows. Rows of an engine for small jobs count only while they are in use,
        because other jobs cannot use its free rows.
    num_waiting: requests without a row.
    num_prefilling: those of them that an engine has taken.
    num_waiting_tokens: the work of those that no engine has taken, see `Generation.work`.
    kv_bytes: bytes of the states of all rows in use.
    """

    num_waiting: int
    num_rows: int
    num_slots: int
    kv_bytes: int
    num_prefilling: int = 0
    num_waiting_tokens: int = 0


@dataclass(slots=True)
class StepStats:
    """Statistics of one step. Its phases are encode, prefill and decode; the rest of its time is
    spent on the host.

    num_rows: rows of the decoding run; 0 if there was none.
    num_source_tokens, num_padded_tokens: tokens encoded in this step, without and with padding.
    num_prefilled_tokens: prompt tokens computed.
    num_prefix_hits, num_prefix_misses: prompt tokens found, and not found, in the prefix cache.
    queue_seconds: waiting time of each request admitted in this step.
    num_encoder_hits, num_encoder_misses: sources found in the cache, and sources encoded.
    num_expired: requests whose deadline has passed.
    num_reorders: beam search rows that copied another row's states.
    """

    phase_seconds: dict[str, float] = field(default_factory=dict)
    num_rows: int = 0
    num_source_tokens: int = 0
    num_padded_tokens: int = 0
    num_prefilled_tokens: int = 0
    queue_seconds: list[float] = field(default_factory=list)
    num_prefix_hits: int = 0
    num_prefix_misses: int = 0
    num_encoder_hits: int = 0
    num_encoder_misses: int = 0
    num_expired: int = 0
    num_reorders: int = 0

    def count_admitted(self, generations: list[Generation], now: float) -> None:
        """Record how long generations have waited, in them too."""
        for generation in generations:
            generation.queue_seconds = now - generation.submitted_at
            self.queue_seconds.append(generation.queue_seconds)

    def count_encoded(self, new: list[Generation], cached: list[Generation], span: int) -> None:
        """Count sources that were encoded, padded to `span`, and sources found in the cache."""
        self.num_source_tokens += sum(generation.num_source_tokens for generation in new)
        self.num_padded_tokens += span * len(new)
        if span:
            self.num_encoder_misses += len(new)
            self.num_encoder_hits += len(cached)

    def add_seconds(self, phase: str, started: float) -> None:
        """Add the time since `started` to a phase: encode, prefill or decode."""
        elapsed = time.perf_counter() - started
        self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + elapsed


class EngineObserver(Protocol):
    """Is called after every step, on the engine's thread; it must not block."""

    def on_step(self, step_stats: StepStats, stats: EngineStats, step_seconds: float) -> None: ...
