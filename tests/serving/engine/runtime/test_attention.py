"""Attention over the source, for those who want it: nobody else's bytes change, and it is their own
whoever is in the batch.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graph
from serving.engine.runtime.session import open_graphs
from serving.errors import RequestError
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.serving.engine.driving import Story, run_all, run_alone
from tests.tiny import tiny_bundle

CONFIG = EngineConfig(slots=16, threads=1)


@pytest.fixture(params=["transformer", "bahdanau"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Bundle:
    return open_bundle(tiny_bundle(request.param, tmp_path, Precision.INT8))


def random_requests(num_requests: int) -> list[GenerationRequest]:
    """Every third wants attention; all end at their own lengths."""
    rng = np.random.default_rng(num_requests)
    return [
        GenerationRequest(
            str(i),
            tuple(rng.integers(3, 259, rng.integers(1, 96)).tolist()),
            forced_ids=tuple(rng.integers(3, 259, i % 4).tolist()),
            max_new_tokens=int(rng.integers(2, 30)),
            alignment_heads=() if i % 3 == 0 else None,
        )
        for i in range(num_requests)
    ]


def attention_of(story: Story) -> list[bytes]:
    return [alignment.tobytes() for alignment in story.tokens.alignments]


def test_a_request_says_and_sees_the_same_alone_and_in_company(bundle: Bundle) -> None:
    requests = random_requests(24)
    together = run_all(Engine(bundle, CONFIG), requests)
    for request in requests:
        alone = run_alone(Engine(bundle, CONFIG), request)
        story = together[request.request_id]
        assert story.said == alone.said
        assert attention_of(story) == attention_of(alone)
        assert len(attention_of(story)) == (request.alignment_heads is not None) * len(story.tokens)


def test_wanting_attention_changes_no_score(bundle: Bundle) -> None:
    engine = Engine(bundle, CONFIG)
    for request in random_requests(6):
        plain, wanting = (
            run_alone(engine, dataclasses.replace(request, alignment_heads=() if wants else None))
            for wants in (False, True)
        )
        assert plain.said == wanting.said
        assert plain.final == wanting.final


def test_attention_covers_the_requests_own_source(bundle: Bundle) -> None:
    requests = random_requests(12)
    stories = run_all(Engine(bundle, CONFIG), requests)
    for request in requests[::3]:
        assert request.source_ids is not None
        for alignment in stories[request.request_id].tokens.alignments:
            assert alignment.shape == (len(request.source_ids),)
            assert abs(alignment.sum() - 1) < 1e-5


def test_heads_may_be_chosen(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP32))
    request = dataclasses.replace(random_requests(1)[0], max_new_tokens=5)
    engine = Engine(bundle, CONFIG)
    by_head = [
        run_alone(engine, dataclasses.replace(request, alignment_heads=(head,))) for head in (4, 7)
    ]
    both = run_alone(engine, dataclasses.replace(request, alignment_heads=(4, 7)))
    alignments = [story.tokens.alignments for story in (*by_head, both)]
    assert len(both.tokens.alignments) == 5
    for one, other, mean in zip(*alignments, strict=True):
        assert np.allclose(mean, (one + other) / 2, atol=1e-6)
        assert not np.allclose(one, other, atol=1e-3)


def test_the_graph_is_loaded_when_it_is_first_wanted(bundle: Bundle) -> None:
    graphs = open_graphs(bundle, CONFIG)
    loaded = []

    def load() -> Graph:
        assert graphs.attention is not None
        loaded.append(graphs.attention())
        return loaded[-1]

    engine = Engine(bundle, CONFIG, dataclasses.replace(graphs, attention=load))
    requests = random_requests(6)
    run_all(engine, requests[1:3])
    assert not loaded
    run_all(engine, requests)
    assert len(loaded) == 1


def test_a_language_model_has_no_source_to_attend_to(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP32))
    request = GenerationRequest("a", prompt_ids=(5, 6), alignment_heads=())
    with pytest.raises(RequestError, match="attention"):
        Engine(bundle, CONFIG).submit(request)


@pytest.mark.parametrize(
    ("field", "value", "options"),
    [
        ("attention_heads", (), {"alignment_heads": ()}),
        ("coverage_penalty", 0.2, {"beam": BeamParams(2, coverage_penalty=0.2)}),
        ("attention_heads", (0,), {"alignment_heads": (0,)}),
    ],
)
def test_without_attention_nothing_that_needs_it(
    tmp_path: Path, field: str, value: Any, options: dict[str, Any]
) -> None:
    bundle = open_bundle(tiny_bundle("bahdanau", tmp_path, Precision.FP32))
    graphs = {name: bundle.manifest.graphs[name] for name in ("encode", "step")}
    manifest = dataclasses.replace(bundle.manifest, graphs=graphs, alignment_heads=())
    engine = Engine(dataclasses.replace(bundle, manifest=manifest), CONFIG)
    with pytest.raises(RequestError) as caught:
        engine.submit(GenerationRequest("a", (5, 6), **options))
    assert (caught.value.field, caught.value.value) == (field, value)
    assert run_alone(engine, GenerationRequest("b", (5, 6), beam=BeamParams(2))).tokens
