"""Kept states: bounded, and worth the same, bit for bit, as computing them again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.states.memory import HostMemory, StateCache
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.serving.engine.driving import Story, record_events, run_all, run_alone
from tests.tiny import tiny_bundle

PRECISIONS = [Precision.FP32, Precision.INT8]


def new_engine(bundle: Bundle, has_caches: bool, slots: int = 16) -> Engine:
    num_bytes = 2**24 if has_caches else 0
    config = EngineConfig(
        slots=slots,
        threads=1,
        max_step_tokens=32,
        prefill_chunk=16,
        prefix_cache_bytes=num_bytes,
        encoder_cache_bytes=num_bytes,
    )
    return Engine(bundle, config)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 120)), max_size=60))
def test_a_cache_keeps_those_used_last_within_its_bytes(uses: list[tuple[int, int]]) -> None:
    cache = StateCache(200, HostMemory())
    sizes: dict[int, int] = {}  # the least lately used first
    for token_id, size in uses:
        states = cache.get((token_id,))
        assert (None if states is None else len(states[0])) == sizes.get(token_id)
        if token_id in sizes:
            sizes[token_id] = sizes.pop(token_id)
            continue
        cache.put((token_id,), [np.full(size, token_id, np.uint8)])
        while sizes and sum(sizes.values()) + 4 * len(sizes) + size + 4 > 200:
            del sizes[next(iter(sizes))]
        sizes[token_id] = size


def test_what_alone_is_too_large_is_not_kept_and_drives_nothing_out() -> None:
    cache = StateCache(100, HostMemory())
    cache.put((1,), [np.zeros(10, np.uint8)])
    cache.put((2,), [np.zeros(101, np.uint8)])
    assert cache.get((2,)) is None
    assert cache.get((1,)) is not None


def test_what_is_kept_is_a_copy() -> None:
    cache = StateCache(100, HostMemory())
    state = np.ones(3)
    cache.put((1,), [state])
    state[:] = 2
    states = cache.get((1,))
    assert states is not None
    assert states[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", ["llama", "mamba2"])
def test_a_prompt_with_a_known_prefix_says_what_it_says_without(
    family: str, precision: Precision, tmp_path: Path
) -> None:
    bundle = open_bundle(tiny_bundle(family, tmp_path, precision))
    rng = np.random.default_rng(5)
    shared = rng.integers(3, bundle.manifest.vocab_size, 62).tolist()
    requests = []
    for i, length in enumerate([60, 3, 16, 17, 18, 33, 34, 50, 60, 60, 18, 40]):
        suffix = rng.integers(3, bundle.manifest.vocab_size, 2).tolist() if i % 3 else []
        prompt = (*shared[: length - len(suffix)], *suffix)
        beam = BeamParams(3) if i % 4 == 1 else None
        requests.append(GenerationRequest(str(i), None, prompt, beam=beam, logprobs=2))
    engine = new_engine(bundle, has_caches=True)
    num_hits = check_against_alone(engine, new_engine(bundle, has_caches=False), requests)
    assert num_hits > 2 * 100


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", ["transformer", "bahdanau"])
def test_a_known_source_says_what_it_says_anew(
    family: str, precision: Precision, tmp_path: Path
) -> None:
    bundle = open_bundle(tiny_bundle(family, tmp_path, precision))
    rng = np.random.default_rng(6)
    vocabulary = bundle.manifest.vocab_size
    sources = [tuple(rng.integers(3, vocabulary, n).tolist()) for n in (5, 9, 16, 17, 40, 90)]
    requests = []
    for i, which in enumerate(rng.integers(0, 6, 24)):
        beam = BeamParams(3) if i % 4 == 1 else None
        requests.append(GenerationRequest(str(i), sources[which], beam=beam, max_new_tokens=12))
    engine = new_engine(bundle, has_caches=True)
    num_hits = check_against_alone(engine, new_engine(bundle, has_caches=False), requests)
    assert num_hits >= 2 * 24 - 6


def check_against_alone(engine: Engine, plain: Engine, requests: list[GenerationRequest]) -> int:
    """Twice, in waves. Returns how many tokens or sources the caches held."""
    alone = {request.request_id: run_alone(plain, request) for request in requests}
    num_hits = 0
    for _ in range(2):
        stories: dict[str, Story] = {}
        waiting = list(requests)
        while waiting or engine.has_work:
            engine.submit(*waiting[:3])
            del waiting[:3]
            record_events(stories, engine.step())
            num_hits += engine.step_stats.num_prefix_hits + engine.step_stats.num_encoder_hits
        for request_id, story in stories.items():
            assert story.tokens == alone[request_id].tokens
            assert story.final == alone[request_id].final
    return num_hits


def test_the_context_can_be_filled_from_the_cache(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP32))
    engine = new_engine(bundle, has_caches=True, slots=2)
    room = bundle.manifest.limits.max_target_tokens - len(bundle.manifest.tokens.prompt_prefix) - 1
    request = GenerationRequest("r", None, tuple(5 + i % 200 for i in range(room)))
    first = run_alone(engine, request)
    again = run_all(engine, [replace(request, request_id=name) for name in "ab"])
    assert again["a"].said == again["b"].said == first.said
