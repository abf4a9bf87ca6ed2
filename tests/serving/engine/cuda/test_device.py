"""An engine whose scores lie on a device says what it says over memory of the host, and what it
says without running ahead.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.bundle.manifest import Precision, Task
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.session import open_graphs
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FailedEvent, GenerationRequest
from tests.serving.engine.cuda.lazy_device import LazyDevice, in_turns, on_device, selecting
from tests.serving.engine.driving import Story, run_all, run_as_they_come
from tests.serving.engine.toy import STOP, VOCAB_SIZE, Script, toy_bundle, toy_graphs
from tests.tiny import tiny_bundle

DRAWN = SamplingParams(temperature=1.0, seed=5)
EDITS = ProcessorParams(
    repetition_penalty=1.3, no_repeat_ngram_size=2, frequency_penalty=0.5, logit_bias=((7, 2.0),)
)
ASKS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "long": {"ignore_eos": True},
    "top n": {"logprobs": 4},
    "own stops": {"stop_token_ids": (7, 8, 9)},
    "edited": {"processors": EDITS},
    "longer": {"processors": ProcessorParams(min_tokens=4, bad_words=((5,), (6, 7)))},
    "allowed": {"processors": ProcessorParams(allowed_ids=(33, 34, 35))},
    "beam": {"beam": BeamParams(3, num_hypotheses=2)},
    "edited beam": {"beam": BeamParams(2), "processors": EDITS},
    "forced": {"forced_ids": (30, 31, 32), "logprobs": 2},
    "scored": {"forced_ids": (30, 31, 32, STOP), "max_new_tokens": 0},
    "typical": {"sampling": replace(DRAWN, typical_p=0.8)},
    "edited and typical": {"sampling": replace(DRAWN, typical_p=0.9), "processors": EDITS},
}
DRAWN_THERE: dict[str, dict[str, Any]] = {
    "drawn": {"sampling": DRAWN},
    "drawn long": {"sampling": DRAWN, "ignore_eos": True},
    "filtered": {"sampling": replace(DRAWN, top_k=30, top_p=0.9, min_p=0.02)},
    "hot": {"sampling": replace(DRAWN, temperature=1.7, top_p=0.95), "ignore_eos": True},
    "edited and drawn": {"processors": EDITS, "sampling": DRAWN},
}
ALL = ASKS | DRAWN_THERE


def requests_for(asks: dict[str, dict[str, Any]], has_source: bool) -> list[GenerationRequest]:
    requests = []
    for i, (name, ask) in enumerate(asks.items()):
        ids = tuple(3 + (7 * i + j * j) % 45 for j in range(2 + i % 5))
        input_ids: dict[str, Any] = {"source_ids": ids} if has_source else {"prompt_ids": ids}
        requests.append(GenerationRequest(name, **{"max_new_tokens": 9} | input_ids | ask))
    return requests


def engine_on(device: LazyDevice, has_encoder: bool, slots: int = 6, **options: Any) -> Engine:
    graphs = replace(toy_graphs(has_encoder=has_encoder), select=selecting(VOCAB_SIZE))
    return engine_of(on_device(graphs, device), has_encoder, slots, **options)


def engine_of(graphs: Graphs, has_encoder: bool, slots: int, **options: Any) -> Engine:
    config = EngineConfig(slots, 1, prefix_cache_bytes=2**12, encoder_cache_bytes=2**12)
    return Engine(toy_bundle(has_encoder), config, graphs, **options)


def said(stories: dict[str, Story]) -> dict[str, object]:
    return {name: (story.tokens, story.final) for name, story in stories.items()}


@pytest.mark.parametrize("haste", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("has_encoder", [True, False])
@pytest.mark.parametrize("excluded", [(), (3, 9, 20, 21, 40)])
def test_says_what_it_says_over_memory_of_the_host(
    haste: float, has_encoder: bool, excluded: tuple[int, ...]
) -> None:
    requests = requests_for(ASKS, has_encoder)
    host = engine_of(toy_graphs(has_encoder=has_encoder), has_encoder, 6, excluded_ids=excluded)
    device = engine_on(LazyDevice(haste), has_encoder, excluded_ids=excluded)
    assert said(run_all(device, requests)) == said(run_all(host, requests))


@settings(max_examples=60)
@given(data=st.data(), has_encoder=st.booleans(), haste=st.sampled_from([0.0, 0.2, 1.0]))
def test_running_ahead_changes_nothing(
    data: st.DataObject, has_encoder: bool, haste: float
) -> None:
    names = data.draw(st.lists(st.sampled_from([*ALL]), min_size=1, max_size=12))
    asks = {f"{name} {i}": ALL[name] for i, name in enumerate(names)}
    requests = [
        replace(request, streams=number % 2 == 0)
        for number, request in enumerate(requests_for(asks, has_encoder))
    ]
    steps = st.integers(0, 25)
    arrivals = [data.draw(steps) for _ in requests]
    cancels = data.draw(st.dictionaries(st.integers(0, len(requests) - 1), steps))
    cancels = {number: max(step, arrivals[number]) for number, step in cancels.items()}
    slots = data.draw(st.integers(3, 8))
    device = LazyDevice(haste, seed=len(names))
    ahead = run_as_they_come(engine_on(device, has_encoder, slots), requests, arrivals, cancels)
    alone = run_all(in_turns(engine_on(LazyDevice(), has_encoder, slots)), requests)
    for number, request in enumerate(requests):
        story, expected = ahead[request.request_id], alone[request.request_id]
        assert story.final is not None
        if number in cancels:
            assert story.said == expected.said[: len(story.said)]
        else:
            assert (story.tokens, story.final) == (expected.tokens, expected.final)


def test_greedy_and_drawn_rows_run_ahead_and_bring_no_vocabulary() -> None:
    """All but the first step and the last."""
    device = LazyDevice()
    engine = engine_on(device, has_encoder=True)
    for name in ("long", "drawn long"):
        engine.submit(GenerationRequest(name, (5, 6), max_new_tokens=12, **ALL[name]))
    was_ahead = []
    while engine.has_work:
        engine.step()
        was_ahead.append(engine._runner.has_launched)
    assert was_ahead == [True] * 11 + [False]
    assert device.num_bytes_to_host < 12 * 6 * 200  # the likeliest, with ids, and the choices


@pytest.mark.parametrize("name", ["edited", "allowed", "beam", "typical", "forced"])
def test_rows_that_the_host_decides_about_hold_all_back(name: str) -> None:
    engine = engine_on(LazyDevice(), has_encoder=True)
    engine.submit(GenerationRequest("a", (5, 6), max_new_tokens=12, ignore_eos=True))
    engine.submit(GenerationRequest("b", (5, 6), **{"max_new_tokens": 5, **ALL[name]}))
    engine.step()
    assert not engine._runner.has_launched


def test_a_run_that_fails_ends_its_requests_and_the_engine_lives_on() -> None:
    script = Script()
    engine = engine_of(on_device(toy_graphs(script), LazyDevice()), True, 6)
    requests = [GenerationRequest(str(i), (5, 6 + i), ignore_eos=True) for i in range(3)]
    engine.submit(*requests)
    events = engine.step() + engine.step()
    script.poisoned_tokens |= set(range(3, 50))
    while engine.has_work:
        events += engine.step()
    assert sum(isinstance(event, FailedEvent) for event in events) == 3
    script.poisoned_tokens.clear()
    after = said(run_all(engine, requests))
    assert after == said(run_all(engine_of(toy_graphs(), True, 6), requests))


def test_a_bundle_that_cannot_choose_on_the_device_draws_on_the_host() -> None:
    requests = requests_for(ALL, has_source=True)
    graphs = on_device(toy_graphs(), LazyDevice())
    on_device_said = said(run_all(engine_of(graphs, True, 6), requests))
    assert on_device_said == said(run_all(engine_of(toy_graphs(), True, 6), requests))


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "llama"])
def test_real_models_run_ahead_too(family: str, tmp_path: Path) -> None:
    """With graphs of half precision, as devices have them, on the CPU's kernels."""
    bundle = open_bundle(tiny_bundle(family, tmp_path, Precision.FP16))
    config = EngineConfig(slots=7, threads=1)
    graphs = open_graphs(bundle, config)
    graphs = replace(graphs, select=selecting(bundle.manifest.vocab_size))
    requests = requests_for(ALL, has_source=bundle.manifest.task is Task.TRANSLATE)
    ahead = Engine(bundle, config, on_device(graphs, LazyDevice(haste=0.3)))
    turns = in_turns(Engine(bundle, config, on_device(graphs, LazyDevice())))
    ahead_said, host = (
        said(run_all(ahead, requests)),
        said(run_all(Engine(bundle, config), requests)),
    )
    assert ahead_said == said(run_all(turns, requests))
    assert {name: ahead_said[name] for name in ASKS} == {name: host[name] for name in ASKS}
