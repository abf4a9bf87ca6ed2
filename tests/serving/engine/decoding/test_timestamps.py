"""Timestamps in transcripts: the rules beside plain loops and Hugging Face, and in the engine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperTimeStampLogitsProcessor

from serving.bundle.manifest import LogitsProcessors, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.decoding.logits_processors import Processors
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.requests.parameters import (
    BeamParams,
    ProcessorParams,
    SamplingParams,
    TimestampRules,
)
from serving.requests.request import FinishedEvent, GenerationRequest
from tests.serving.engine.decoding.editing import (
    SLOTS,
    VOCAB_SIZE,
    advance,
    edited_by,
    generation_of,
    random_scores,
    row_of,
    scores_of,
)
from tests.serving.engine.decoding.naive_timestamps import allowed_scores, assert_obeys
from tests.serving.engine.driving import run_alone
from tests.tiny import tiny_bundle

END, NO_TIMESTAMPS, FIRST = 12, 14, 15
RULES = TimestampRules(END, NO_TIMESTAMPS, FIRST, max_initial_index=3)
word, timestamp = st.integers(0, END - 1), st.integers(FIRST, VOCAB_SIZE - 1)
sampled = st.lists(word | timestamp, max_size=6)


def logits_of(seed: int, raised: float) -> Any:
    """Random logits, those of timestamps raised."""
    logits = np.random.default_rng(seed).normal(0, 2, VOCAB_SIZE).astype(np.float32)
    logits[FIRST:] += raised
    return logits


def edited(logits: Any, tokens: list[int], rules: TimestampRules = RULES) -> tuple[Any, bool]:
    """Return which tokens may come next, bool [vocabulary], and whether none may."""
    processors = Processors(SLOTS, VOCAB_SIZE)
    params = ProcessorParams(timestamps=rules)
    processors.on_add(0, generation_of(params, prompt=(3, FIRST + 2, 4), forced_ids=(5, FIRST)))
    advance(processors, *tokens)
    scores = scores_of(logits[None])
    processors.edit(scores)
    assert scores.edited is not None
    return np.isfinite(row_of(scores, 0)), bool(scores.edited.is_dead[0])


@given(sampled, st.integers(0, 1000), st.sampled_from([-4.0, -1.0, 0.0, 2.0]), st.booleans())
@settings(max_examples=400)
def test_rules_are_those_of_plain_loops(
    tokens: list[int], seed: int, raised: float, has_limit: bool
) -> None:
    rules = RULES if has_limit else TimestampRules(END, NO_TIMESTAMPS, FIRST)
    logits = logits_of(seed, raised)
    expected = np.isfinite(allowed_scores(rules, logits.tolist(), tokens))
    actual, is_dead = edited(logits, tokens, rules)
    np.testing.assert_array_equal(actual, expected)
    assert is_dead == (not expected.any())


@given(sampled, st.integers(0, 1000), st.sampled_from([-4.0, -1.0, 0.0, 2.0]))
@settings(max_examples=200)
def test_rules_are_those_of_hugging_face(tokens: list[int], seed: int, raised: float) -> None:
    # There the first timestamp is the token after `no_timestamps`.
    config: Any = SimpleNamespace(
        no_timestamps_token_id=NO_TIMESTAMPS, eos_token_id=END, max_initial_timestamp_index=3
    )
    theirs = WhisperTimeStampLogitsProcessor(config, begin_index=2)
    logits = logits_of(seed, raised)
    expected = theirs(torch.tensor([[0, 1, *tokens]]), torch.tensor(logits)[None])[0]
    np.testing.assert_array_equal(edited(logits, tokens)[0], np.isfinite(expected.numpy()))


def test_other_processors_come_first() -> None:
    """A timestamp is forced if it is more probable than each word that is not suppressed."""
    logits = np.full(VOCAB_SIZE, -20.0, np.float32)
    logits[4], logits[5], logits[FIRST + 2] = 3.0, 0.5, 1.0
    for suppressed, allowed in (((), {4, 5}), ((4,), set())):
        processors = Processors(SLOTS, VOCAB_SIZE)
        of_model = LogitsProcessors(suppress_tokens=suppressed)
        params = ProcessorParams(timestamps=RULES)
        processors.on_add(0, generation_of(params, model_processors=of_model))
        advance(processors, FIRST, 4)
        scores = scores_of(logits[None])
        processors.edit(scores)
        words = set(np.flatnonzero(np.isfinite(row_of(scores, 0)[:END])).tolist())
        assert words >= allowed if allowed else not words


def test_a_row_goes_by_its_own_tokens_alone() -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    processors.on_add(0, generation_of(ProcessorParams(timestamps=RULES)))
    advance(processors, FIRST + 1)
    processors.on_copy(0, 1)
    advance(processors, 4)
    processors.on_copy(1, 2)
    processors.on_move(2, 0)
    advance(processors, FIRST + 4)
    alone = [edited(random_scores(2, 5).logp[row], [FIRST + 1, 4, FIRST + 4])[0] for row in (0, 1)]
    scores = random_scores(2, 5)
    processors.edit(scores)
    np.testing.assert_array_equal(np.isfinite([row_of(scores, row) for row in (0, 1)]), alone)


@pytest.mark.parametrize("renormalizes", [True, False])
def test_log_probabilities_are_those_of_all_tokens_or_of_the_allowed_ones(
    renormalizes: bool,
) -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    params = ProcessorParams(timestamps=RULES, renormalizes=renormalizes)
    processors.on_add(0, generation_of(params, prompt=(3,)))
    logits = logits_of(7, -4.0)
    scores = scores_of(logits[None])
    processors.edit(scores)
    logp = logits - np.logaddexp.reduce(logits)
    allowed = np.array(allowed_scores(RULES, logits.tolist(), []))
    expected = allowed - np.logaddexp.reduce(allowed) if renormalizes else logp
    [actual] = scores.reported_logprobs(np.array([0]), np.array([FIRST + 1]))
    assert actual == pytest.approx(expected[FIRST + 1], abs=1e-5)
    assert (actual > logp[FIRST + 1] + 1) == renormalizes


def test_without_rules_nothing_changes() -> None:
    before = random_scores(1).logp[0]
    np.testing.assert_array_equal(edited_by(ProcessorParams()), before)


TIMES = TimestampRules(end_id=200, no_timestamps_id=205, first_id=206, max_initial_index=10)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundles")
    return open_bundle(tiny_bundle("transformer", folder, Precision.FP32))


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"sampling": SamplingParams(temperature=1.0, seed=3)},
        {"sampling": SamplingParams(temperature=1.5, top_k=40, seed=4)},
        {"beam": BeamParams(4, num_hypotheses=4)},
    ],
    ids=["greedy", "drawn", "filtered", "beam"],
)
def test_every_transcript_obeys_the_rules(bundle: Bundle, search: dict[str, Any]) -> None:
    engine = Engine(bundle, EngineConfig(threads=1))
    num_timestamps = 0
    for i in range(6):
        request = GenerationRequest(
            f"r{i}",
            tuple(3 + (7 * i + j) % 190 for j in range(9)),
            forced_ids=(30, 31),
            max_new_tokens=24,
            processors=ProcessorParams(timestamps=TIMES),
            **search,
        )
        event = run_alone(engine, request).final
        assert isinstance(event, FinishedEvent)
        for hypothesis in event.hypotheses:
            assert hypothesis.tokens.ids[:2] == [30, 31]
            generated = hypothesis.tokens.ids[2:]
            assert_obeys(TIMES, generated)
            num_timestamps += sum(token >= TIMES.first_id for token in generated)
    assert num_timestamps > 6


def test_rules_name_tokens_of_the_model(bundle: Bundle) -> None:
    size = bundle.manifest.vocab_size
    engine = Engine(bundle, EngineConfig(threads=1))
    for rules in (
        TimestampRules(200, 205, size),
        TimestampRules(200, 205, 206, max_initial_index=size),
        TimestampRules(200, -1, 206),
    ):
        processors = ProcessorParams(timestamps=rules)
        with pytest.raises(RequestError, match=r"timestamps.*ids go from 0 to"):
            engine.submit(GenerationRequest("r", (4, 5), processors=processors))
