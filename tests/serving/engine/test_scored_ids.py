"""The log-probabilities of tokens that a request names, right after its prompt."""

from typing import Any

import numpy as np
import pytest

from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishedEvent, GenerationRequest
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import BOS, VOCAB_SIZE, next_logp, toy_bundle, toy_graphs

SCORED = (7, 3, 40)
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"sampling": SamplingParams(temperature=1.2, seed=1)},
    "beam": {"beam": BeamParams(3)},
    "edited": {"processors": ProcessorParams(allowed_ids=(9, 10), repetition_penalty=1.5)},
    "plain": {"returns_logprobs": False},
    "one token": {"max_new_tokens": 1},
}


def run_toy(engine: Engine, *requests: GenerationRequest) -> dict[str, FinishedEvent]:
    events = {name: story.final for name, story in run_all(engine, requests).items()}
    finished = {n: event for n, event in events.items() if isinstance(event, FinishedEvent)}
    assert len(finished) == len(requests)
    return finished


@pytest.mark.parametrize("has_encoder", [True, False], ids=["source", "prompt alone"])
@pytest.mark.parametrize("forced", [(), (11, 12)], ids=["free", "forced"])
def test_they_are_the_models_own_after_the_prompt(
    has_encoder: bool, forced: tuple[int, ...]
) -> None:
    engine = Engine(
        toy_bundle(has_encoder), EngineConfig(slots=12), toy_graphs(has_encoder=has_encoder)
    )
    source = (5, 6, 8)
    requests = [
        GenerationRequest(
            name,
            source if has_encoder else None,
            (13, 14),
            forced_ids=forced,
            scored_ids=SCORED,
            **{"max_new_tokens": 6} | search,
        )
        for name, search in SEARCHES.items()
    ]
    expected = next_logp(source if has_encoder else (), (BOS, 13, 14))[[*SCORED]]
    for name, event in run_toy(engine, *requests).items():
        np.testing.assert_allclose(event.scored_logprobs, expected, rtol=1e-6, err_msg=name)
        assert event.best.tokens.ids[: len(forced)] == [*forced]


def test_other_requests_have_none() -> None:
    engine = Engine(toy_bundle(), EngineConfig(slots=12), toy_graphs())
    asking = GenerationRequest("asking", (5,), scored_ids=SCORED, max_new_tokens=4)
    events = run_toy(engine, GenerationRequest("plain", (5,), max_new_tokens=4), asking)
    assert events["plain"].scored_logprobs == ()
    assert events["plain"].best == events["asking"].best


def test_they_are_tokens_of_the_model() -> None:
    engine = Engine(toy_bundle(), EngineConfig(), toy_graphs())
    with pytest.raises(RequestError, match="scored_ids: no such token"):
        engine.submit(GenerationRequest("r", (5,), scored_ids=(VOCAB_SIZE,)))
