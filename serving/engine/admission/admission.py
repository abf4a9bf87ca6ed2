"""Brings accepted generations into the batch: they wait, then their sources are encoded or their
prompts prefilled.
"""

from serving.engine.admission.intake import Surroundings
from serving.engine.admission.prompts import PromptIntake
from serving.engine.admission.sources import SourceIntake
from serving.engine.admission.waiting import Fail, Waiting
from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.graphs.runner import Runner
from serving.engine.measures import StepStats
from serving.engine.rows import Rows


class Admission:
    def __init__(
        self, config: EngineConfig, batch: Batch, runner: Runner, rows: Rows, fail: Fail
    ) -> None:
        self._batch = batch
        self._waiting = Waiting(config)
        around = Surroundings(config, self._waiting, batch, runner, rows, fail)
        self._intake = PromptIntake(around) if runner.can_prefill else SourceIntake(around)

    @property
    def num_waiting(self) -> int:
        """Count the requests without a row."""
        return len(self._waiting) + len(self._intake.underway)

    @property
    def is_due(self) -> bool:
        """Tell whether some can come in now."""
        return self._intake.is_due

    def add(self, generations: list[Generation]) -> None:
        """Accept generations, all or none. Raises Overloaded."""
        num_claimed = sum(each.request.num_rows for each in self._intake.underway)
        self._waiting.add(generations, self._batch.num_free - num_claimed)

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was not in the batch yet."""
        return self._waiting.remove(generation) or self._intake.remove(generation)

    def admit(self, step_stats: StepStats) -> None:
        """Bring in those whose turn it is, before the next decoding run."""
        self._intake.admit(step_stats)
