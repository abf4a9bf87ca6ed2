"""The promise: a request says the same bytes alone and in company, whatever the others ask."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.writer import export_checkpoint
from serving.bundle.manifest import Precision, Task
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.engine import Engine
from serving.engine.runtime.session import open_graphs
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.requests.parameters import (
    BeamParams,
    ProcessorParams,
    SamplingParams,
    TimestampRules,
)
from serving.requests.request import GenerationRequest
from serving.text.constraints.term_insertion import TermInsertion
from tests.grid import full
from tests.serving.engine.devices import DEVICE, PRECISIONS, assert_alike, config_of
from tests.serving.engine.driving import Story, record_events, run_all, run_alone
from tests.tiny import tiny_bundle, tiny_checkpoint

EOS = 2
DRAWN = SamplingParams(temperature=1.0, seed=5)
EDITS = ProcessorParams(repetition_penalty=1.3, no_repeat_ngram_size=2, frequency_penalty=0.5)
TIMES = ProcessorParams(
    timestamps=TimestampRules(200, 205, 206, max_initial_index=10), renormalizes=True
)
NO_IDS = np.array([], np.int64)
TERM = TermInsertion(1, (40, 41), (42,), (), frozenset({33}), NO_IDS, np.array([EOS]))
ASKS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "plain": {"returns_logprobs": False},
    "plain and forced": {"returns_logprobs": False, "forced_ids": (30, 31, 32)},
    "top n": {"logprobs": 4},
    "drawn": {"sampling": DRAWN},
    "filtered": {"sampling": replace(DRAWN, top_k=30, top_p=0.9, min_p=0.02)},
    "typical": {"sampling": replace(DRAWN, typical_p=0.8, temperature=0.7)},
    "edited": {"processors": EDITS},
    "edited and drawn": {"processors": EDITS, "sampling": replace(DRAWN, typical_p=0.9)},
    "beam": {"beam": BeamParams(4, num_hypotheses=3)},
    "wide beam": {"beam": BeamParams(12, 12, length_penalty=0.6, early_stopping="never")},
    "patient beam": {"beam": BeamParams(3, early_stopping=True, patience=2.0)},
    "edited beam": {"beam": BeamParams(5), "processors": EDITS},
    "term": {"beam": BeamParams(4), "constraint": TERM},
    "forced": {"forced_ids": (30, 31, 32), "logprobs": 2},
    "forced beam": {"forced_ids": (30, 31), "beam": BeamParams(2)},
    "scored": {"forced_ids": (30, 31, 32, EOS), "max_new_tokens": 0},
    "forced beyond a stop": {"forced_ids": (30, EOS, 32)},
    "allowed": {"processors": ProcessorParams(allowed_ids=(33, 34, 35)), "sampling": DRAWN},
    "timestamps": {"processors": TIMES, "forced_ids": (30,), "scored_ids": (31, 32)},
    "timestamps drawn": {"processors": TIMES, "sampling": DRAWN, "scored_ids": (31,)},
    "timestamps of beams": {"processors": TIMES, "beam": BeamParams(3, 3), "scored_ids": (31,)},
}
OF_A_SOURCE: dict[str, dict[str, Any]] = {
    "attention": {"alignment_heads": ()},
    "attention of beams": {"alignment_heads": (), "beam": BeamParams(3, 3)},
    "coverage": {"beam": BeamParams(4, coverage_penalty=0.3)},
}


@pytest.fixture(scope="module", params=["transformer", "bahdanau", "llama", "recurrent-lm"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[PRECISIONS[-1], *full(PRECISIONS[:-1])])
def bundle(
    request: pytest.FixtureRequest, family: str, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundles")
    return open_bundle(tiny_bundle(family, folder, request.param))


def requests_for(bundle: Bundle) -> Iterator[GenerationRequest]:
    has_source = bundle.manifest.task is Task.TRANSLATE
    asks = ASKS | OF_A_SOURCE if has_source else ASKS
    for i, (name, ask) in enumerate(asks.items()):
        ids = tuple(3 + (7 * i + j * j) % 250 for j in range(3 + i % 9))
        input_ids: dict[str, Any] = {"source_ids": ids} if has_source else {"prompt_ids": ids}
        yield GenerationRequest(name, **{"max_new_tokens": 12} | input_ids | ask)


def test_a_request_says_the_same_alone_and_among_all_others(bundle: Bundle) -> None:
    requests = list(requests_for(bundle))
    together = run_all(Engine(bundle, config_of(slots=80)), requests)
    cramped = run_all(Engine(bundle, config_of(slots=12)), reversed(requests))
    engine = Engine(bundle, config_of(slots=12))
    alone = {request.request_id: run_alone(engine, request) for request in requests}
    assert_alike(requests, together, alone)
    assert_alike(requests, cramped, alone)


@pytest.mark.skipif(DEVICE != "cpu", reason="a cache of another type is for CPUs")
def test_the_same_holds_where_keys_and_values_are_fp16(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama", tmp_path / "llama")
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.INT8, has_fp16_cache=True)
    test_a_request_says_the_same_alone_and_among_all_others(open_bundle(tmp_path / "bundle"))


def lanes_of(bundle: Bundle, slots: int) -> tuple[Engine, Engine]:
    """Make the engine of large jobs and the one of small jobs beside them."""
    config = config_of(slots=slots)
    graphs = open_graphs(bundle, config)
    shared = SharedParts.create(bundle.manifest, config, graphs)
    common, small = (Engine(bundle, config, graphs, (), shared, job_size) for job_size in JobSize)
    return common, small


@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU has one job_size")
def test_a_small_job_says_the_same_alone_and_beside_a_large_one(bundle: Bundle) -> None:
    slots = 32
    requests = [each for each in requests_for(bundle) if each.num_rows <= slots // 8]
    common, small = lanes_of(bundle, slots)
    of_large: dict[str, Any] = {"job_id": "large", "ignore_eos": True, "max_new_tokens": 40}
    many = [
        replace(each, request_id=f"{number} of many", forced_ids=(), **of_large)
        for number, each in enumerate(requests * 2)
    ]
    common.submit(*many)
    beside: dict[str, Story] = {}
    for request in requests:
        common.step()
        small.submit(request)
        record_events(beside, small.step())
        assert common.stats().num_rows and small.stats().num_rows
    while small.has_work:
        common.step()
        record_events(beside, small.step())

    engine = Engine(bundle, config_of(slots=slots))
    alone = {each.request_id: run_alone(engine, each) for each in requests}
    assert {*beside} == {*alone}
    assert_alike(requests, beside, alone)
