"""Defines the way from the queue to the rows that intakes of prompts and of sources share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.engine.admission.desk import Seat
from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.graphs.runner import Runner
from serving.engine.measures import StepStats
from serving.engine.rows import Rows
from serving.engine.states.cache import StateCache

Fail = Callable[[list[Generation], Exception], None]  # told of those that cannot come in, and why


@dataclass(frozen=True)
class Surroundings:
    """Holds what an intake takes generations from, fills with them and reports to."""

    config: EngineConfig
    seat: Seat
    cache: StateCache
    batch: Batch
    runner: Runner
    rows: Rows
    fail: Fail


class Intake(ABC):
    """Takes generations from the queue and, at once or some steps later, adds them to the rows."""

    def __init__(self, around: Surroundings) -> None:
        self._seat, self._batch, self._rows = around.seat, around.batch, around.rows
        self._runner, self._states, self._fail = around.runner, around.runner.states, around.fail
        self._cache = around.cache

    @property
    def underway(self) -> Sequence[Generation]:
        """List the generations that have left the queue and have no row yet."""
        return ()

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """Tell whether it is somebody's turn."""

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was underway."""
        return False

    @abstractmethod
    def admit(self, step_stats: StepStats) -> None:
        """Bring in those whose turn it is, before the next decoding run."""
