"""Windows of sound in the engine: company, prompts that are prefilled, clients that go away."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.session import open_graphs
from serving.errors import RequestError
from serving.kernels.library import native_kernels
from serving.requests.parameters import (
    BeamParams,
    ProcessorParams,
    SamplingParams,
    TimestampRules,
)
from serving.requests.request import (
    AbortedEvent,
    AttentionQuery,
    Audio,
    FinishedEvent,
    GenerationRequest,
    Picture,
)
from tests.serving.engine.driving import (
    comparable_story,
    record_events,
    run_all,
    run_alone,
    run_as_they_come,
)
from tests.tiny import tiny_bundle

DRAWN = SamplingParams(temperature=1.0, seed=5)
TEXT = (30, 31, 32, 33, 34, 35, 36)  # of the window before


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.INT8])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundles")
    return open_bundle(tiny_bundle("whisper", folder, request.param))


def windows(bundle: Bundle, number: int) -> list[Audio]:
    """Return noise, each window another."""
    spec = bundle.manifest.media_input
    assert spec is not None
    shape = [int(size) for size in spec.shape[1:]]
    features = np.random.default_rng(3).normal(0, 1, (number, *shape)).astype(np.float32)
    num_positions = bundle.manifest.limits.max_source_tokens or 0
    return [Audio(window.tobytes(), num_positions) for window in features]


def request_for(bundle: Bundle, name: str, audio: Audio, **more: Any) -> GenerationRequest:
    """Return a request for a transcript with times, after a text."""
    spec, tokens = bundle.manifest.audio, bundle.manifest.tokens
    assert spec is not None
    rules = TimestampRules(tokens.eos, spec.no_timestamps, spec.first_timestamp, 50)
    arguments: dict[str, Any] = {
        "audio": audio,
        "is_whole": True,
        "prompt_ids": (spec.previous, *TEXT, spec.start),
        "forced_ids": (spec.languages["en"], spec.transcribe),
        "scored_ids": (spec.no_speech,),
        "max_new_tokens": 14,
        "processors": ProcessorParams(timestamps=rules),
    }
    return GenerationRequest(name, **arguments | more)


def requests_for(bundle: Bundle) -> Iterator[GenerationRequest]:
    """Yield requests for 8 windows, in many ways; some windows come twice."""
    spec = bundle.manifest.audio
    assert spec is not None
    kinds: list[dict[str, Any]] = [
        {},
        {"beam": BeamParams(5)},
        {"sampling": DRAWN},
        {"prompt_ids": (spec.start,), "streams": True},
        {"prompt_ids": (spec.previous, *TEXT * 5, spec.start), "beam": BeamParams(2, 2)},
        {"attention_queries": (AttentionQuery("cross", (1,), (0, 2)),)},
        {"processors": ProcessorParams(), "logprobs": 3},
        {"sampling": replace(DRAWN, top_k=20, seed=9), "alignment_heads": ()},
    ]
    for number, audio in enumerate(windows(bundle, 8)):
        yield request_for(bundle, f"a{number}", audio, **kinds[number])
        if number % 3 == 0:
            yield request_for(bundle, f"b{number}", audio, **kinds[number - 1])


def new_engine(bundle: Bundle, **sizes: Any) -> Engine:
    return Engine(bundle, EngineConfig(threads=1, prefill_chunk=4, **sizes))


@pytest.mark.parametrize("seed", range(3))
def test_windows_say_the_same_in_any_order_and_company(bundle: Bundle, seed: int) -> None:
    requests = [*requests_for(bundle)]
    engine = new_engine(bundle, slots=64)
    alone = {request.request_id: run_alone(engine, request) for request in requests}
    random = np.random.default_rng(seed)
    shuffled = [requests[i] for i in random.permutation(len(requests))]
    arrivals = random.integers(0, 12, len(requests)).tolist()
    stories = run_as_they_come(new_engine(bundle, slots=9), shuffled, arrivals, {})
    for name, story in stories.items():
        assert comparable_story(story) == comparable_story(alone[name]), name
        final, expected = story.final, alone[name].final
        assert isinstance(final, FinishedEvent) and isinstance(expected, FinishedEvent)
        pairs = zip(
            final.best.tokens.attention_pieces, expected.best.tokens.attention_pieces, strict=True
        )
        for pieces, others in pairs:
            np.testing.assert_array_equal(pieces[0][0], others[0][0])


@pytest.mark.skipif(native_kernels().path is None, reason="prompts are read by steps")
def test_prefilled_prompts_say_what_steps_say(bundle: Bundle) -> None:
    graphs = open_graphs(bundle, EngineConfig(threads=1))
    assert graphs.can_prefill
    for number, audio in enumerate(windows(bundle, 4)):
        said = []
        for can_prefill in (True, False):
            config = EngineConfig(threads=1, prefill_chunk=4)
            engine = Engine(bundle, config, replace(graphs, can_prefill=can_prefill))
            # Steps are read from the final event, so few of them show that the prompt had none.
            event = run_alone(engine, request_for(bundle, str(number), audio)).final
            assert isinstance(event, FinishedEvent)
            num_tokens = len(event.best.tokens) + (event.best.stop_id is not None)
            assert event.num_steps == num_tokens + (0 if can_prefill else len(TEXT) + 1)
            said.append((event.best.tokens.ids, event.best.tokens.logprobs, event.scored_logprobs))
        assert said[0][0] == said[1][0]
        np.testing.assert_allclose(said[0][1], said[1][1], atol=1e-5)
        np.testing.assert_allclose(said[0][2], said[1][2], atol=1e-5)


@pytest.mark.skipif(native_kernels().path is None, reason="prompts are read by steps")
def test_samples_of_a_window_are_encoded_and_prefilled_once(bundle: Bundle) -> None:
    [audio] = windows(bundle, 1)
    samples = [
        request_for(bundle, str(seed), audio, sampling=replace(DRAWN, seed=seed))
        for seed in range(5)
    ]
    engine = new_engine(bundle, encoder_cache_bytes=0)
    engine.submit(*samples)
    stories: dict[str, Any] = {}
    record_events(stories, engine.step())
    assert engine.step_stats.num_encoder_misses == 1
    assert engine.step_stats.num_prefilled_tokens == len(TEXT) + 1
    assert engine.stats().num_rows == 5
    while engine.has_work:
        record_events(stories, engine.step())
    alone = run_alone(engine, samples[4])
    assert comparable_story(stories["4"]) == comparable_story(alone)


def test_a_window_is_encoded_between_the_steps_of_others(bundle: Bundle) -> None:
    """Eight windows at once do not stop a row for eight encoder runs."""
    engine = new_engine(bundle, max_encode_tokens=100)
    first, *others = windows(bundle, 9)
    long = request_for(bundle, "long", first, max_new_tokens=30, ignore_eos=True)
    engine.submit(long)
    engine.step()
    for number, audio in enumerate(others):
        engine.submit(request_for(bundle, str(number), audio))
    for num_rows in range(2, 8):
        engine.step()
        assert engine.step_stats.num_encoder_misses == 1
        assert engine.step_stats.num_rows == num_rows


def test_a_client_that_goes_away_frees_its_rows(bundle: Bundle) -> None:
    engine = new_engine(bundle, slots=8)
    gone, waiting, stays, late = windows(bundle, 4)
    endless: dict[str, Any] = {"ignore_eos": True, "max_new_tokens": 40}
    engine.submit(request_for(bundle, "gone", gone, beam=BeamParams(5), **endless))
    engine.submit(request_for(bundle, "stays", stays, beam=BeamParams(2)))
    engine.submit(request_for(bundle, "waiting", waiting, beam=BeamParams(5), **endless))
    stories: dict[str, Any] = {}
    while engine.stats().num_rows < 7:  # all beams of two requests
        record_events(stories, engine.step())
        assert engine.has_work and "stays" not in stories
    assert engine.stats().num_waiting == 1
    engine.cancel("gone")
    engine.cancel("waiting")
    record_events(stories, engine.step())
    assert engine.stats().num_rows == 2 and not engine.stats().num_waiting
    engine.submit(request_for(bundle, "late", late, beam=BeamParams(5)))
    while engine.has_work:
        record_events(stories, engine.step())
    assert engine.stats().num_rows == 0
    for name in ("gone", "waiting"):
        assert isinstance(stories[name].final, AbortedEvent)
    for name, audio, beam in (("stays", stays, BeamParams(2)), ("late", late, BeamParams(5))):
        alone = run_alone(new_engine(bundle), request_for(bundle, name, audio, beam=beam))
        assert comparable_story(stories[name]) == comparable_story(alone)


def test_what_is_no_window_is_refused(bundle: Bundle) -> None:
    engine = new_engine(bundle)
    [audio] = windows(bundle, 1)
    good = request_for(bundle, "r", audio)
    for changes, text in (
        ({"audio": None}, "audio: this model needs sound"),
        ({"audio": None, "source_ids": (4, 5)}, "audio: this model needs sound"),
        ({"source_ids": (4, 5)}, "source_ids: this model takes no source"),
        ({"picture": Picture(b"123", 1)}, "picture: this model reads no pictures"),
        ({"audio": replace(audio, features=audio.features[4:])}, "must have 20 x 200 features"),
        ({"audio": replace(audio, num_positions=99)}, "and 100 positions"),
        ({"scored_ids": (10**6,)}, "scored_ids: no such token"),
    ):
        with pytest.raises(RequestError, match=text):
            engine.submit(replace(good, **changes))


def test_models_of_text_read_no_sound(tmp_path: Path, bundle: Bundle) -> None:
    engine = Engine(open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP32)))
    with pytest.raises(RequestError, match="audio: this model reads no sound"):
        engine.submit(GenerationRequest("r", (4, 5), audio=windows(bundle, 1)[0]))


def test_a_window_that_cannot_be_read_fails_alone(bundle: Bundle) -> None:
    """Features that are no numbers give scores that are none, of that window alone."""
    first, second = windows(bundle, 2)
    wrong = np.frombuffer(first.features, np.float32).copy()
    wrong[:] = np.nan
    requests = [
        request_for(bundle, "wrong", replace(first, features=wrong.tobytes())),
        request_for(bundle, "right", second),
    ]
    engine = new_engine(bundle)
    stories = run_all(engine, requests)
    assert not isinstance(stories["wrong"].final, FinishedEvent)
    alone = run_alone(engine, requests[1])
    assert comparable_story(stories["right"]) == comparable_story(alone)


def test_eight_windows_are_cached_however_large_they_are(bundle: Bundle) -> None:
    """A window whose text is not good enough is decoded again without another encoder run."""
    audios = windows(bundle, 8)
    for num_bytes, expected in ((1, 8), (0, 0)):
        engine = new_engine(bundle, encoder_cache_bytes=num_bytes)
        run_all(engine, [request_for(bundle, f"{i}", audio) for i, audio in enumerate(audios)])
        again = [
            request_for(bundle, f"{i} drawn", audio, sampling=DRAWN)
            for i, audio in enumerate(audios)
        ]
        engine.submit(*again)
        num_hits = 0
        while engine.has_work:
            engine.step()
            num_hits += engine.step_stats.num_encoder_hits
        assert num_hits == expected
