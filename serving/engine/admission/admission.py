"""Brings accepted generations into the batch: they wait, then their sources are encoded or their
prompts prefilled.
"""

from serving.engine.admission.intake import Surroundings
from serving.engine.admission.prompts import PromptIntake
from serving.engine.admission.sources import SourceIntake
from serving.engine.generation import Generation
from serving.engine.measures import StepStats


class Admission:
    def __init__(self, around: Surroundings) -> None:
        self._intake = PromptIntake(around) if around.runner.can_prefill else SourceIntake(around)

    @property
    def num_underway(self) -> int:
        """Count the requests that have left the queue and have no row yet."""
        return len(self._intake.underway)

    @property
    def is_due(self) -> bool:
        """Tell whether some can come in now."""
        return self._intake.is_due

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it had no row yet."""
        return self._intake.remove(generation)

    def admit(self, step_stats: StepStats) -> None:
        """Bring in those whose turn it is, before the next decoding run."""
        self._intake.admit(step_stats)
