"""Shortlists end to end: a small bundle as Bergamot's are, from its file's table to its tokens."""

from collections.abc import Iterator
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import GenerationRequest
from serving.text.shortlist import Shortlist
from tests.export.layers.test_shortlist import VOCAB_SIZE, bundle_of
from tests.serving.engine.driving import comparable_story, run_all, run_alone
from tests.serving.engine.test_company import ASKS

WITHOUT = {"scored"}  # it ends with another token than this model's texts


@pytest.fixture(scope="module", params=[Precision.INT8, Precision.FP32])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle_of(tmp_path_factory.mktemp("bundles"), request.param)


def requests_for(bundle: Bundle) -> Iterator[GenerationRequest]:
    shortlist = Shortlist.load(bundle)
    assert shortlist is not None
    for i, (name, ask) in enumerate(ASKS.items()):
        if name in WITHOUT:
            continue
        ids = tuple(3 + (7 * i + j * j) % (VOCAB_SIZE - 4) for j in range(3 + i % 9))
        short = None if i % 5 == 4 else shortlist.tokens_for(ids)
        fields: dict[str, Any] = {"source_ids": ids, "shortlist": short, "max_new_tokens": 12}
        yield GenerationRequest(name, **fields | ask)


def test_a_request_says_the_same_alone_and_among_others(bundle: Bundle) -> None:
    requests = list(requests_for(bundle))
    together = run_all(Engine(bundle, EngineConfig(slots=60, threads=1)), requests)
    cramped = run_all(Engine(bundle, EngineConfig(slots=12, threads=1)), reversed(requests))
    alone = Engine(bundle, EngineConfig(slots=12, threads=1))
    for request in requests:
        name = request.request_id
        expected = comparable_story(run_alone(alone, request))
        assert comparable_story(together[name]) == expected, name
        assert comparable_story(cramped[name]) == expected, name


def test_only_tokens_of_the_shortlist_come(bundle: Bundle) -> None:
    shortlist = Shortlist.load(bundle)
    assert shortlist is not None
    engine = Engine(bundle, EngineConfig(slots=4, threads=1))
    ids = (5, 9, 12)
    short = GenerationRequest("r", ids, shortlist=shortlist.tokens_for(ids), max_new_tokens=15)
    assert len(shortlist.tokens_for(ids)) < VOCAB_SIZE
    assert set(run_alone(engine, short).token_ids) <= set(shortlist.tokens_for(ids).tolist())
