"""Settles how a model runs here: as it was told, as was measured, or by default."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.graphs.graph import Graphs
from serving.engine.graphs.session import open_graphs, settled
from serving.engine.planning.figures import Figures, choose
from serving.engine.planning.keeping import FiguresFile
from serving.engine.planning.measuring import measure
from serving.engine.planning.plan import (
    Allowance,
    Origin,
    Plan,
    candidates,
    default_plan,
    unmeasured_plan,
)
from serving.engine.planning.trial import EncodingTrial, Trial
from serving.engine.worker import Steps

logger = logging.getLogger(__name__)

ROWS_AT_LOAD = 16  # for each CPU: 32 on two
# Plans are measured with their graphs loaded beside each other; of a larger model few steps would
# fit into the time.
MAX_MEASURED_BYTES = 512 * 2**20

MakeEngine = Callable[[EngineConfig, Graphs], Steps]


@dataclass(frozen=True)
class Settled:
    """Holds a plan, how it came about, and what engines are made of under it."""

    plan: Plan
    origin: Origin
    config: EngineConfig
    graphs: Graphs

    def __str__(self) -> str:
        return f"{self.plan} ({self.origin})"


class Planner:
    """Plans one bundle. Graphs that were loaded to be measured are not loaded again."""

    def __init__(self, bundle: Bundle, config: EngineConfig, make_engine: MakeEngine) -> None:
        self._bundle, self._make_engine = bundle, make_engine
        self._config = settled(config, bundle.manifest)
        self._loaded: dict[int, Graphs] = {}

    def settle(self, allowance: Allowance) -> Settled:
        """Choose a plan. Raises BundleError or DeviceError."""
        plan, origin = self._choose(allowance)
        config = replace(self._config, threads=plan.threads)
        found = Settled(plan, origin, config, self._graphs(plan.threads))
        self._loaded.clear()
        return found

    def _choose(self, allowance: Allowance) -> tuple[Plan, Origin]:
        if self._config.device != "cpu":
            return Plan(1, allowance.threads or allowance.cpus), Origin.ONLY
        if (given := allowance.given) is not None:
            return given, Origin.GIVEN
        if len(candidates(allowance.cpus)) == 1:
            return default_plan(allowance.cpus), Origin.ONLY
        file, default = FiguresFile(self._bundle, allowance.cpus), default_plan(allowance.cpus)
        if figures := file.read():
            return choose(default, figures, allowance.serves_http).plan, Origin.KEPT
        if not allowance.measures or self._num_bytes() > MAX_MEASURED_BYTES:
            return unmeasured_plan(allowance), Origin.DEFAULT
        figures = self._measure(allowance.cpus)
        choice = choose(default, figures, allowance.serves_http)
        if not choice.is_clear:
            return default, Origin.UNCLEAR
        file.write(figures)
        return choice.plan, Origin.MEASURED

    def _measure(self, cpus: int) -> Figures:
        def open_trial(plan: Plan) -> Trial:
            rows = max(1, cpus * ROWS_AT_LOAD // plan.engines)
            config = replace(
                self._config,
                slots=rows,
                threads=plan.threads,
                max_waiting=None,
                prefix_cache_bytes=0,
                encoder_cache_bytes=0,
                speculation=False,  # a step of a trial is one token of each row
            )
            graphs = self._graphs(plan.threads)
            engines = [self._make_engine(config, graphs) for _ in range(plan.engines)]
            manifest = self._bundle.manifest
            kind = EncodingTrial if manifest.task.only_encodes else Trial
            return kind(manifest, engines, rows)

        return measure(candidates(cpus), open_trial)

    def _graphs(self, threads: int) -> Graphs:
        if threads not in self._loaded:
            self._loaded[threads] = open_graphs(
                self._bundle, replace(self._config, threads=threads)
            )
        return self._loaded[threads]

    def _num_bytes(self) -> int:
        files = (self._bundle.folder / name for name in self._bundle.manifest.files)
        return sum(file.stat().st_size for file in files)
