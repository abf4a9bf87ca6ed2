"""Finds what has become slower, in under a minute, on any machine: `make bench-smoke`.

    python -m loadtest.bench.smoke INT8_BUNDLE FP32_BUNDLE

Seconds depend on the machine, ratios measured within one run hardly do. Each is the median of
repetitions whose two sides take turns, on one thread and in processor time, in which other work on
the machine does not count. A ratio that has lost more than a fifth of its baseline is measured
again, and the median of all repetitions counts. Baselines are kept for each kind of processor, as
each gains otherwise from int8; where there is none, nothing is compared.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click

from loadtest.bench.closed_loop import STEPS, Share, SteadyLoad, end, seconds_of_steps
from loadtest.bench.compare import processor
from loadtest.bench.comparisons import (
    Comparison,
    ComparisonOptions,
    Raw,
    compare_beam,
    compare_sampling,
)
from loadtest.bench.workload import BenchWorkload, build_workload
from serving.engine.arrays import Array
from serving.engine.runtime.graph import Graph, Run
from serving.engine.runtime.session import open_graphs
from serving.pipelines.loading import ModelParts
from serving.requests.parameters import BeamParams, SamplingParams

BASELINE = Path(__file__).with_name("smoke.json")
LARGEST_LOSS = 0.2
TRIES = 3
ROWS = 32
RUNS_OF_HOST = 3
OPTIONS = ComparisonOptions(
    BeamParams(4),
    SamplingParams(0.8, top_k=50, top_p=0.95, seed=0),
    None,
    num_repetitions=5,
    clock=time.process_time,
)

Measure = Callable[[], list[float]]  # a value for each repetition


def ratios(int8: BenchWorkload, fp32: BenchWorkload) -> dict[str, Measure]:
    """Return what measures each ratio; all are better when they are larger."""
    return {
        f"int8 over fp32, batch {ROWS}": lambda: compare_precisions(int8, fp32).values,
        f"graphs over all else, batch {ROWS}": lambda: compare_host(int8).values,
        "beam 4 over greedy, batch 8": lambda: [
            1 / value for value in compare_beam(int8, OPTIONS).values
        ],
        "sampling over greedy, batch 32": lambda: compare_sampling(int8, OPTIONS).values,
    }


def compare_precisions(int8: BenchWorkload, fp32: BenchWorkload) -> Comparison:
    """Compare the steps of full batches in int8 and in fp32."""
    engines = [(workload, workload.engine(ROWS)) for workload in (int8, fp32)]

    def repeat() -> Raw:
        ours, theirs = (
            seconds_of_steps(engine, [Share(workload.requests(), ROWS)], OPTIONS.clock).all
            for workload, engine in engines
        )
        return {"int8_seconds": ours, "fp32_seconds": theirs, "value": theirs / ours}

    return _repeat_comparison("tokens/s, int8 over fp32", repeat)


def compare_host(workload: BenchWorkload) -> Comparison:
    """Compare what graphs take of the steps of full batches with what all else takes, which is the
    engine's own.
    """
    graphs = open_graphs(workload.parts.bundle, workload.config(ROWS))
    assert graphs.encode is not None
    step, encode = MeteredGraph(graphs.step), MeteredGraph(graphs.encode)
    engine = workload.engine(ROWS, graphs=replace(graphs, step=step, encode=encode))

    def run() -> Raw:
        step.seconds = encode.seconds = 0.0
        load = SteadyLoad(engine, [Share(workload.requests(), ROWS)])
        started = OPTIONS.clock()
        load.run(STEPS)
        seconds, in_graphs = OPTIONS.clock() - started, step.seconds + encode.seconds
        end(engine)
        raw = {"seconds": seconds, "graph_seconds": in_graphs}
        return {**raw, "value": in_graphs / (seconds - in_graphs)}

    def repeat() -> Raw:
        """Run a few times: other work makes caches cold for Python's many small things, and only
        it, so the best is the nearest to the truth.
        """
        return max((run() for _ in range(RUNS_OF_HOST)), key=lambda raw: raw["value"])

    return _repeat_comparison("time of graphs over that of all else", repeat)


class MeteredGraph:
    """A graph that sums up the time of its runs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.seconds = 0.0

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self._graph.bind(inputs, outputs)

        def run_with_metrics() -> None:
            started = OPTIONS.clock()
            run()
            self.seconds += OPTIONS.clock() - started

        return run_with_metrics


def _repeat_comparison(says: str, repeat: Callable[[], Raw]) -> Comparison:
    repeat()  # warm up
    return Comparison(says, ROWS, [repeat() for _ in range(OPTIONS.num_repetitions)])


@dataclass(frozen=True)
class SmokeOutcome:
    """A ratio. baseline: None where there is none for this processor."""

    name: str
    value: float
    baseline: float | None
    num_tries: int

    @property
    def is_lost(self) -> bool:
        return has_lost(self.value, self.baseline)

    @property
    def line(self) -> str:
        stored = "none" if self.baseline is None else f"{self.baseline:.2f}"
        verdict = "LOST" if self.is_lost else "ok"
        tries = "" if self.num_tries == 1 else f", {self.num_tries} tries"
        return f"{verdict:4} {self.name}: {self.value:.2f} (baseline {stored}{tries})"


def has_lost(value: float, baseline: float | None) -> bool:
    return baseline is not None and value < baseline * (1 - LARGEST_LOSS)


def outcome(name: str, measure: Measure, baseline: float | None) -> SmokeOutcome:
    """Measure once, and again as long as it looks like a loss."""
    values, num_tries = measure(), 1
    while has_lost(median(values), baseline) and num_tries < TRIES:
        values, num_tries = values + measure(), num_tries + 1
    return SmokeOutcome(name, median(values), baseline, num_tries)


@click.command(context_settings={"show_default": True})
@click.argument("int8", type=click.Path(path_type=Path))
@click.argument("fp32", type=click.Path(path_type=Path))
@click.option("--baseline", type=click.Path(path_type=Path), default=BASELINE)
@click.option("--write", is_flag=True, help="Store what is measured as this processor's baseline.")
def main(int8: Path, fp32: Path, baseline: Path, write: bool) -> None:
    """Measure ratios of speeds of the bundles INT8 and FP32 of one model; fail where one has lost
    more than 20 % of its baseline.

    After a change that is meant to move a ratio, store the new one with --write on a quiet machine.
    """
    kind = processor()
    stored: dict[str, dict[str, float]] = json.loads(baseline.read_text("utf-8"))
    stored_values: Mapping[str, float] = {} if write else stored.get(kind, {})
    comparisons = []
    for name, measure in ratios(_workload(int8), _workload(fp32)).items():
        comparisons.append(outcome(name, measure, stored_values.get(name)))
        click.echo(comparisons[-1].line)
    if write:
        stored[kind] = {comparison.name: round(comparison.value, 3) for comparison in comparisons}
        baseline.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")
    elif not stored_values:
        click.echo(f"no baseline for {kind}: nothing is compared; store one with --write")
    if lost := [comparison.name for comparison in comparisons if comparison.is_lost]:
        raise click.ClickException(f"slower than {baseline.name} by more than 20 %: {lost}")


def _workload(bundle: Path) -> BenchWorkload:
    return build_workload(ModelParts.open(bundle), None, None, "cpu", threads=1)


if __name__ == "__main__":
    main()
