"""A request sees what its tokens look at: that alone, whoever is in the batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.checking.rows import Rows
from serving.bundle.manifest import AttentionKind, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine import attention_query
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.parameters import BeamParams
from serving.pipelines.seen import Looks, ReadTokens
from serving.request import FinishedEvent, GenerationRequest, Look
from tests.serving.engine.driving import Story, run_all, run_alone
from tests.tiny import tiny_bundle

CONFIG = EngineConfig(slots=16, threads=1, prefill_chunk=16)
FAMILIES = ("transformer", "lstmn", "llama", "key-value-lm")
NOBODY = ReadTokens((), (), ())


def bundle_of(architecture: str, folder: Path, precision: Precision = Precision.FP32) -> Bundle:
    return open_bundle(tiny_bundle(architecture, folder, precision))


def looks_of(bundle: Bundle) -> tuple[Look, ...]:
    return tuple(Look(kind) for kind in bundle.manifest.told_attention)


def requests_for(bundle: Bundle, num_requests: int) -> list[GenerationRequest]:
    """Every third looks at everything; all are of their own lengths."""
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
            looks=looks_of(bundle) if i % 3 == 0 else (),
        )
        for i in range(num_requests)
    ]


def seen(bundle: Bundle, request: GenerationRequest, story: Story) -> list[np.ndarray]:
    """The matrix of each look, [layers, heads, rows, columns]."""
    assert isinstance(story.final, FinishedEvent)
    looks = Looks(request.looks, bundle.manifest.told_attention)
    return [each.weights for each in looks.seen(story.tokens, story.final, NOBODY)]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_request_sees_the_same_alone_and_in_company(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path, Precision.INT8)
    requests = requests_for(bundle, 18)
    together = run_all(Engine(bundle, CONFIG), requests)
    plain = run_all(Engine(bundle, CONFIG), [replace(each, looks=()) for each in requests])
    alone = Engine(bundle, CONFIG)
    for request in requests:
        story = together[request.request_id]
        assert story.said == plain[request.request_id].said, "to look changes nothing"
        if not request.looks:
            assert isinstance(story.final, FinishedEvent) and story.final.seen is None
            continue
        found = zip(
            seen(bundle, request, story),
            seen(bundle, request, run_alone(alone, request)),
            strict=True,
        )
        assert all(np.array_equal(one, other) for one, other in found)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_all_that_was_read_is_told_of(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path)
    [request] = requests_for(bundle, 1)
    story = run_alone(Engine(bundle, CONFIG), request)
    prefix = bundle.manifest.tokens.prompt_prefix
    target = [*prefix, *request.prompt_ids, *(token.token_id for token in story.tokens)]
    is_stopped = isinstance(story.final, FinishedEvent) and story.final.stop_logprob is not None
    num_read = len(target) if is_stopped else len(target) - 1
    rows = Rows(bundle, [list(request.source_ids or ())], wants_attention=True)
    columns = []
    for token_id in target[:num_read]:
        rows.read([[token_id]])
        columns.append(rows.outputs["decoder_attention"][0, :, 0, :num_read])
    by_kind = dict(zip(bundle.manifest.told_attention, seen(bundle, request, story), strict=True))
    own = by_kind[AttentionKind.DECODER]
    assert own.shape[2:] == (num_read, num_read)
    assert np.abs(own.reshape(-1, num_read, num_read) - np.stack(columns, 1)).max() < 1e-5
    if request.source_ids is not None:
        length = len(request.source_ids)
        told = rows.source_outputs["encoder_attention"][0, :, :length, :length]
        assert np.array_equal(by_kind[AttentionKind.ENCODER].reshape(told.shape), told)
        num_found = len(story.tokens) + is_stopped
        assert by_kind[AttentionKind.CROSS].shape[2:] == (num_found, length)


@pytest.mark.parametrize("architecture", ["transformer", "llama"])
def test_a_search_tells_of_the_hypothesis_that_wins(tmp_path: Path, architecture: str) -> None:
    bundle = bundle_of(architecture, tmp_path)
    [request] = requests_for(bundle, 1)
    request = replace(request, forced_ids=(), max_new_tokens=7, beam=BeamParams(4))
    engine = Engine(bundle, CONFIG)
    won = run_alone(engine, request)
    ids = tuple(token.token_id for token in won.tokens)
    again = replace(request, beam=None, forced_ids=ids, max_new_tokens=1, ignore_eos=True)
    followed = run_alone(engine, again)
    for found, expected in zip(
        seen(bundle, request, won), seen(bundle, again, followed), strict=True
    ):
        num_rows, num_columns = found.shape[2:]
        assert np.abs(found - expected[:, :, :num_rows, :num_columns]).max() < 1e-6


def test_what_a_cache_holds_is_looked_at_again(tmp_path: Path) -> None:
    bundle = bundle_of("llama", tmp_path)
    [request] = requests_for(bundle, 1)
    request = replace(request, prompt_ids=tuple(range(5, 45)), forced_ids=())
    engine = Engine(bundle, CONFIG)
    run_alone(engine, replace(request, looks=()))
    first, second = (run_alone(engine, request) for _ in range(2))
    [one], [other] = (seen(bundle, request, story) for story in (first, second))
    assert np.array_equal(one, other)
    assert np.abs(one.sum(-1) - 1).max() < 1e-5


def test_layers_heads_and_means_may_be_chosen(tmp_path: Path) -> None:
    bundle = bundle_of("transformer", tmp_path)
    [request] = requests_for(bundle, 1)
    whole, some, mean = (
        Look("encoder"),
        Look("encoder", (1,), (3, 0)),
        Look("encoder", (1,), (), True),
    )
    request = replace(request, looks=(whole, some, mean))
    all_heads, chosen, average = seen(bundle, request, run_alone(Engine(bundle, CONFIG), request))
    assert np.array_equal(chosen, all_heads[[1]][:, [3, 0]])
    assert np.allclose(average[0, 0], all_heads[1].mean(axis=0), atol=1e-7)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (Look("sideways"), "tells of no such attention: it has decoder"),
        (Look("encoder"), "tells of no such attention: it has decoder"),
        (Look("decoder", layers=(2,)), "no such layer of decoder attention: they go from 0 to 1"),
        (Look("decoder", heads=(-1,)), "no such head of decoder attention: they go from 0 to 3"),
    ],
)
def test_what_a_model_has_not_is_refused(tmp_path: Path, look: Look, message: str) -> None:
    bundle = bundle_of("llama", tmp_path)
    with pytest.raises(RequestError, match=message):
        Engine(bundle, CONFIG).submit(GenerationRequest("a", prompt_ids=(5,), looks=(look,)))


@pytest.mark.parametrize(
    ("architecture", "look", "fits"),
    [
        ("llama", Look("decoder"), {"max_new_tokens": 3}),
        ("transformer", Look("encoder", is_mean=True), {"source_ids": (5, 6, 7, 8)}),
    ],
)
def test_nobody_looks_at_more_than_can_be_kept(
    tmp_path: Path,
    architecture: str,
    look: Look,
    fits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention_query, "MAX_NUMBERS", 8 * 8 * 8)
    bundle = bundle_of(architecture, tmp_path)
    source = tuple(range(5, 50)) if architecture == "transformer" else None
    request = GenerationRequest("a", source, prompt_ids=(5, 6), looks=(look,))
    engine = Engine(bundle, CONFIG)
    with pytest.raises(RequestError, match="numbers, more than 512: allow for fewer tokens"):
        engine.submit(request)
    assert run_alone(engine, replace(request, **fits)).tokens
