"""Attention queries: the maps are the same whatever else is in the batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.running import GraphRows
from serving.bundle.manifest import AttentionKind, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine import attention_query
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.pipelines.attention_maps import TokenTexts, attention_maps
from serving.requests.parameters import BeamParams
from serving.requests.request import AttentionQuery, FinishedEvent, FinishReason, GenerationRequest
from tests.serving.engine.driving import Story, run_all, run_alone
from tests.tiny import tiny_bundle

CONFIG = EngineConfig(slots=16, threads=1, prefill_chunk=16)
FAMILIES = ("transformer", "lstmn", "llama", "key-value-lm")
NO_TEXTS = TokenTexts((), (), ())


def bundle_of(architecture: str, folder: Path, precision: Precision = Precision.FP32) -> Bundle:
    return open_bundle(tiny_bundle(architecture, folder, precision))


def parse_queries(bundle: Bundle) -> tuple[AttentionQuery, ...]:
    return tuple(AttentionQuery(kind) for kind in bundle.manifest.attention_shapes)


def requests_for(bundle: Bundle, num_requests: int) -> list[GenerationRequest]:
    """Every third asks for all attention; lengths differ."""
    rng = np.random.default_rng(num_requests)
    has_source = "encode" in bundle.manifest.graphs

    def ids(least: int, most: int) -> tuple[int, ...]:
        return tuple(rng.integers(3, 259, rng.integers(least, most)).tolist())

    return [
        GenerationRequest(
            str(i),
            ids(1, 60) if has_source else None,
            prompt_ids=() if has_source else ids(1, 40),
            forced_ids=ids(0, 3),
            max_new_tokens=int(rng.integers(1, 9)),
            attention_queries=parse_queries(bundle) if i % 3 == 0 else (),
        )
        for i in range(num_requests)
    ]


def maps_of(bundle: Bundle, request: GenerationRequest, story: Story) -> list[np.ndarray]:
    """The weights of each map, [layers, heads, rows, columns]."""
    assert isinstance(story.final, FinishedEvent)
    shapes = bundle.manifest.attention_shapes
    pieces = story.tokens.attention_pieces
    maps = attention_maps(request.attention_queries, shapes, pieces, story.final, NO_TEXTS)
    return [attention_map.weights for attention_map in maps]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_maps_are_the_same_alone_and_in_a_batch(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path, Precision.INT8)
    requests = requests_for(bundle, 18)
    together = run_all(Engine(bundle, CONFIG), requests)
    plain = run_all(
        Engine(bundle, CONFIG), [replace(each, attention_queries=()) for each in requests]
    )
    alone = Engine(bundle, CONFIG)
    for request in requests:
        story = together[request.request_id]
        assert story.said == plain[request.request_id].said, "queries change no token"
        if not request.attention_queries:
            assert isinstance(story.final, FinishedEvent) and not story.final.attention_pieces
            continue
        actual = zip(
            maps_of(bundle, request, story),
            maps_of(bundle, request, run_alone(alone, request)),
            strict=True,
        )
        assert all(np.array_equal(one, other) for one, other in actual)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_map_has_a_row_for_every_token_that_was_read(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path)
    [request] = requests_for(bundle, 1)
    story = run_alone(Engine(bundle, CONFIG), request)
    prefix = bundle.manifest.tokens.prompt_prefix
    target = [*prefix, *request.prompt_ids, *story.token_ids]
    assert isinstance(story.final, FinishedEvent)
    is_stopped = story.final.reason is FinishReason.STOP
    num_read = len(target) if is_stopped else len(target) - 1
    rows = GraphRows(bundle, [list(request.source_ids or ())], wants_attention=True)
    columns = []
    for token_id in target[:num_read]:
        rows.read([[token_id]])
        columns.append(rows.outputs["decoder_attention"][0, :, 0, :num_read])
    by_kind = dict(
        zip(bundle.manifest.attention_shapes, maps_of(bundle, request, story), strict=True)
    )
    decoder_maps = by_kind[AttentionKind.DECODER]
    assert decoder_maps.shape[2:] == (num_read, num_read)
    assert np.abs(decoder_maps.reshape(-1, num_read, num_read) - np.stack(columns, 1)).max() < 1e-5
    if request.source_ids is not None:
        length = len(request.source_ids)
        expected = rows.source_outputs["encoder_attention"][0, :, :length, :length]
        assert np.array_equal(by_kind[AttentionKind.ENCODER].reshape(expected.shape), expected)
        num_found = len(story.tokens) + is_stopped
        assert by_kind[AttentionKind.CROSS].shape[2:] == (num_found, length)


@pytest.mark.parametrize("architecture", ["transformer", "llama"])
def test_a_beam_search_reports_the_best_hypothesis(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path)
    [request] = requests_for(bundle, 1)
    request = replace(request, forced_ids=(), max_new_tokens=7, beam=BeamParams(4))
    engine = Engine(bundle, CONFIG)
    won = run_alone(engine, request)
    ids = tuple(won.token_ids)
    again = replace(request, beam=None, forced_ids=ids, max_new_tokens=1, ignore_eos=True)
    followed = run_alone(engine, again)
    for actual, expected in zip(
        maps_of(bundle, request, won), maps_of(bundle, again, followed), strict=True
    ):
        num_rows, num_columns = actual.shape[2:]
        assert np.abs(actual - expected[:, :, :num_rows, :num_columns]).max() < 1e-6


def test_a_cached_prompt_is_computed_again_for_its_map(tmp_path: Path) -> None:
    bundle = bundle_of("llama", tmp_path)
    [request] = requests_for(bundle, 1)
    request = replace(request, prompt_ids=tuple(range(5, 45)), forced_ids=())
    engine = Engine(bundle, CONFIG)
    run_alone(engine, replace(request, attention_queries=()))
    first, second = (run_alone(engine, request) for _ in range(2))
    [one], [other] = (maps_of(bundle, request, story) for story in (first, second))
    assert np.array_equal(one, other)
    assert np.abs(one.sum(-1) - 1).max() < 1e-5


def test_layers_heads_and_means_may_be_chosen(tmp_path: Path) -> None:
    bundle = bundle_of("transformer", tmp_path)
    [request] = requests_for(bundle, 1)
    whole, some, mean = (
        AttentionQuery("encoder"),
        AttentionQuery("encoder", (1,), (3, 0)),
        AttentionQuery("encoder", (1,), (), True),
    )
    request = replace(request, attention_queries=(whole, some, mean))
    all_heads, chosen, average = maps_of(
        bundle, request, run_alone(Engine(bundle, CONFIG), request)
    )
    assert np.array_equal(chosen, all_heads[[1]][:, [3, 0]])
    assert np.allclose(average[0, 0], all_heads[1].mean(axis=0), atol=1e-7)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (AttentionQuery("sideways"), "has no such attention: it has decoder"),
        (AttentionQuery("encoder"), "has no such attention: it has decoder"),
        (
            AttentionQuery("decoder", layers=(2,)),
            "no such layer of decoder attention: they go from 0 to 1",
        ),
        (
            AttentionQuery("decoder", heads=(-1,)),
            "no such head of decoder attention: they go from 0 to 3",
        ),
    ],
)
def test_queries_that_a_model_cannot_answer_are_refused(
    tmp_path: Path, query: AttentionQuery, message: str
) -> None:
    bundle = bundle_of("llama", tmp_path)
    with pytest.raises(RequestError, match=message):
        Engine(bundle, CONFIG).submit(
            GenerationRequest("a", prompt_ids=(5,), attention_queries=(query,))
        )


@pytest.mark.parametrize(
    ("architecture", "query", "fits"),
    [
        ("llama", AttentionQuery("decoder"), {"max_new_tokens": 3}),
        ("transformer", AttentionQuery("encoder", is_mean=True), {"source_ids": (5, 6, 7, 8)}),
    ],
)
def test_queries_for_too_many_weights_are_refused(
    tmp_path: Path,
    architecture: str,
    query: AttentionQuery,
    fits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention_query, "MAX_ATTENTION_WEIGHTS", 8 * 8 * 8)
    bundle = bundle_of(architecture, tmp_path)
    source = tuple(range(5, 50)) if architecture == "transformer" else None
    request = GenerationRequest("a", source, prompt_ids=(5, 6), attention_queries=(query,))
    engine = Engine(bundle, CONFIG)
    with pytest.raises(RequestError, match="numbers, more than 512: allow for fewer tokens"):
        engine.submit(request)
    assert run_alone(engine, replace(request, **fits)).tokens
