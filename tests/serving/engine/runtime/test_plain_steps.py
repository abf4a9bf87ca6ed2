"""Log-probabilities are computed in the steps that some row needs them in, and in no others."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from serving.bundle.manifest import WANTS_LOGP, Precision
from serving.bundle.opening import open_bundle
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graph, Run
from serving.engine.runtime.session import open_graphs
from serving.requests.parameters import SamplingParams
from serving.requests.request import GenerationRequest
from tests.serving.engine.driving import run_all, run_alone
from tests.tiny import tiny_bundle


@dataclass
class Watched:
    """A step graph. scored: of each run, whether it gave log-probabilities."""

    graph: Graph
    scored: list[bool] = field(default_factory=list)

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run, is_scored = self.graph.bind(inputs, outputs), bool(inputs[WANTS_LOGP])

        def watched() -> None:
            self.scored.append(is_scored)
            run()

        return watched


def asking(name: str, **fields: Any) -> GenerationRequest:
    plain: dict[str, Any] = {"source_ids": (5, 6, 7), "max_new_tokens": 5, "ignore_eos": True}
    return GenerationRequest(name, **plain | {"returns_logprobs": False} | fields)


def test_only_steps_with_rows_that_need_them_give_log_probabilities(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.INT8))
    config = EngineConfig(threads=1)
    graphs = open_graphs(bundle, config)
    step = Watched(graphs.step)
    engine = Engine(bundle, config, replace(graphs, step=step))

    plain = run_alone(engine, asking("plain"))
    assert step.scored == [False] * 5
    assert plain.tokens.logprobs == []
    story = run_alone(engine, asking("told", returns_logprobs=True))
    assert step.scored[5:] == [True] * 5
    assert (
        story.token_ids == plain.token_ids
        and len(story.tokens.logprobs) == 5
        and 0 not in story.tokens.logprobs
    )

    step.scored.clear()
    drawn = asking("drawn", sampling=SamplingParams(temperature=1.0, seed=1), max_new_tokens=2)
    together = run_all(engine, [drawn, asking("plain")])
    assert step.scored == [True, True, False, False, False]
    assert together["plain"].said == plain.said
