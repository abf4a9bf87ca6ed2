"""Tells where the engine's time goes: reading, each operator of the step graph, the host.

The engine runs once as it is, which gives the time of its phases, and once with ONNX Runtime's
profile of the step graph, which only divides the time of the decoding phase among operators:
profiling itself costs time.
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.bench.closed_loop import Result, run_closed_loop
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs, OrtGraph
from serving.engine.runtime.session import open_session
from serving.pipelines.loading import ModelParts
from serving.request import GenerationRequest

Requests = Sequence[GenerationRequest]


@dataclass(frozen=True)
class Breakdown:
    """Holds the seconds of a run, and what it did meanwhile.

    operators: seconds of the step graph by operator. reading: of encoding sources and prefilling
    prompts. host: all the rest. num_read_tokens: of sources or prompts.
    """

    batch: int
    seconds: float
    operators: dict[str, float]
    reading: float
    host: float
    num_tokens: int
    num_steps: float
    num_read_tokens: int


def break_down(
    parts: ModelParts, graphs: Graphs, config: EngineConfig, requests: Requests
) -> Breakdown:
    """Run as many requests at a time as the engine has slots, twice."""

    def run(with_graphs: Graphs) -> Result:
        return _second_run(lambda: parts.engine(config, with_graphs), requests, config.slots)

    plain = run(graphs)
    shares = _operator_shares(parts, graphs, config, run)
    decoding = plain.phase_seconds.get("decode", 0.0)
    reading = sum(plain.phase_seconds.get(name, 0.0) for name in ("encode", "prefill"))
    return Breakdown(
        config.slots,
        plain.seconds,
        {name: share * decoding for name, share in shares.items()},
        reading,
        plain.seconds - decoding - reading,
        plain.generated_tokens,
        plain.generated_tokens / plain.mean_rows,
        sum(len(each.source_ids or each.prompt_ids) for each in requests),
    )


def _second_run(make: Callable[[], Engine], requests: Requests, batch: int) -> Result:
    engine = make()
    run_closed_loop(engine, requests, batch)  # warm up
    return run_closed_loop(engine, requests, batch)


def _operator_shares(
    parts: ModelParts,
    graphs: Graphs,
    config: EngineConfig,
    run: Callable[[Graphs], Result],
) -> dict[str, float]:
    """Return each operator's share of the time of all."""
    with tempfile.TemporaryDirectory() as folder:
        step = parts.bundle.graph_path("step")
        session = open_session(step, config, profile=Path(folder) / "profile")
        run(replace(graphs, step=OrtGraph(session)))
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return shares_of(events)


def shares_of(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Add up the nodes of each operator. A node counts by its median: single runs that were
    interrupted would count many times over.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["args"]["op_name"], event["name"]].append(event["dur"])
    of_operators: dict[str, float] = defaultdict(float)
    for (operator, _), of_node in times.items():
        of_operators[operator] += median(of_node) * len(of_node)
    total = sum(of_operators.values())
    return {name: time / total for name, time in of_operators.items()}
