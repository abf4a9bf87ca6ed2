"""Finds what has become slower, in under two minutes, on any machine: `make bench-smoke`.

    python -m loadtest.bench.smoke INT8_BUNDLE FP32_BUNDLE

Seconds depend on the machine, ratios measured within one run hardly do. Each is the median of
repetitions whose two sides take turns, on one thread. A ratio that has lost more than a fifth of
its baseline is measured again: only a loss that stays fails. Baselines are kept for processors with
VNNI and for others, as int8 gains differently on them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from loadtest.bench.comparisons import (
    Comparison,
    ComparisonOptions,
    Raw,
    compare_beam,
    compare_graph,
    compare_sampling,
)
from loadtest.bench.steady import Share, seconds_of_steps
from loadtest.bench.workload import Workload, build_workload
from serving.engine.graphs.processor import has_vnni
from serving.parameters import BeamParams, SamplingParams
from serving.pipelines.loading import ModelParts

BASELINE = Path(__file__).with_name("smoke.json")
LARGEST_LOSS = 0.2
TRIES = 4
ROWS = 32
OPTIONS = ComparisonOptions(
    BeamParams(4), SamplingParams(0.8, top_k=50, top_p=0.95, seed=0), None, num_repetitions=5
)

Measure = Callable[[], float]


def ratios(int8: Workload, fp32: Workload) -> dict[str, Measure]:
    """Return what measures each ratio; all are better when they are larger."""
    return {
        f"int8 over fp32, batch {ROWS}": lambda: compare_precisions(int8, fp32).median,
        "engine over its step graph, batch 32": lambda: compare_graph(int8, OPTIONS).median,
        "beam 4 over greedy, batch 8": lambda: 1 / compare_beam(int8, OPTIONS).median,
        "sampling over greedy, batch 32": lambda: compare_sampling(int8, OPTIONS).median,
    }


def compare_precisions(int8: Workload, fp32: Workload) -> Comparison:
    """Compare the steps of full batches in int8 and in fp32."""
    engines = [(workload, workload.engine(ROWS)) for workload in (int8, fp32)]

    def repeat() -> Raw:
        ours, theirs = (
            seconds_of_steps(engine, [Share(workload.requests(), ROWS)]).all
            for workload, engine in engines
        )
        return {"int8_seconds": ours, "fp32_seconds": theirs, "value": theirs / ours}

    repeat()  # warm up
    repetitions = [repeat() for _ in range(OPTIONS.num_repetitions)]
    return Comparison("tokens/s, int8 over fp32", ROWS, repetitions)


@dataclass(frozen=True)
class Outcome:
    """Holds the best of a ratio's tries. baseline: None where there is none for this processor."""

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


def outcome(name: str, measure: Measure, baseline: float | None) -> Outcome:
    """Measure once, and again as long as it looks like a loss."""
    values = [measure()]
    while has_lost(max(values), baseline) and len(values) < TRIES:
        values.append(measure())
    return Outcome(name, max(values), baseline, len(values))


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
    kind = "vnni" if has_vnni() else "other"
    stored: dict[str, dict[str, float]] = json.loads(baseline.read_text("utf-8"))
    known: Mapping[str, float] = {} if write else stored.get(kind, {})
    found = []
    for name, measure in ratios(_workload(int8), _workload(fp32)).items():
        found.append(outcome(name, measure, known.get(name)))
        click.echo(found[-1].line)
    if write:
        stored[kind] = {each.name: round(each.value, 3) for each in found}
        baseline.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")
    elif not known:
        click.echo(f"no baseline for processors of this kind ({kind}): store one with --write")
    if lost := [each.name for each in found if each.is_lost]:
        raise click.ClickException(f"slower than {baseline.name} by more than 20 %: {lost}")


def _workload(bundle: Path) -> Workload:
    return build_workload(ModelParts.open(bundle), None, None, "cpu", threads=1)


if __name__ == "__main__":
    main()
