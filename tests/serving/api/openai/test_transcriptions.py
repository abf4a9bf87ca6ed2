"""`/v1/audio/transcriptions` and `/v1/audio/translations` over a model with a script."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.audio.features import log_mel
from serving.errors import Overloaded
from serving.pipelines.transcription.job import TEMPERATURES
from serving.server_config import AudioLimits
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.transcribers import AUDIO, RATE, FakeTranscriber, wave_file
from tests.serving.api.world import World
from tests.serving.audio.recordings import tone, write_recording

PATH = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
VERBOSE: dict[str, Any] = {"response_format": "verbose_json"}
WORDS: dict[str, Any] = {**VERBOSE, "timestamp_granularities[]": "word"}
KEY = {"Authorization": "Bearer secret"}


@pytest.fixture
def scribe() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
async def hearing(tokenizer: Tokenizer, scribe: FakeTranscriber) -> AsyncIterator[World]:
    english = FakeTranscriber("english", replace(AUDIO, languages={}, translate=None))
    async with made_world(tokenizer, others=[scribe, english]) as world:
        yield world


async def ask(
    world: World,
    path: str = PATH,
    file: bytes | None = None,
    name: str = "speech.wav",
    **fields: Any,
) -> httpx.Response:
    files = {"file": (name, wave_file() if file is None else file)}
    data = {"model": "scribe", **fields}
    return await world.client.post(path, files=files, data=data)


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def test_json_has_the_text_and_the_seconds(hearing: World, scribe: FakeTranscriber) -> None:
    response = await ask(hearing, file=wave_file(2.5))

    usage = {"type": "duration", "seconds": 3}
    assert response.json() == {"text": "zero one two", "usage": usage}
    [job] = scribe.jobs
    assert (job.language, job.translates, job.is_parallel) == (None, False, False)
    assert job.temperatures == TEMPERATURES and job.decoding.beam is None
    assert job.samples.dtype == np.int16 and job.samples.shape == (2.5 * RATE,)


async def test_sound_of_any_rate_and_number_of_channels_is_read(
    hearing: World, scribe: FakeTranscriber
) -> None:
    response = await ask(hearing, file=wave_file(2.0, rate=44_100, channels=2))

    assert response.status_code == 200, response.text
    assert abs(len(scribe.jobs[0].samples) - 2 * RATE) <= 1
    assert abs(int(np.abs(scribe.jobs[0].samples).max()) - 8000) < 400


async def test_text_and_subtitles(hearing: World) -> None:
    recording = wave_file(12.5)
    text, srt, vtt = [
        await ask(hearing, file=recording, response_format=name) for name in ("text", "srt", "vtt")
    ]

    assert {answer.headers["content-type"] for answer in (text, srt, vtt)} == {
        "text/plain; charset=utf-8"
    }
    assert text.text == "zero one two three four five six seven eight nine zero one two\n"
    assert srt.text == (
        "1\n00:00:00,000 --> 00:00:10,000\n"
        "zero one two three four five six seven eight nine\n\n"
        "2\n00:00:10,000 --> 00:00:12,500\nzero one two\n\n"
    )
    assert vtt.text == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:10.000\n"
        "zero one two three four five six seven eight nine\n\n"
        "00:00:10.000 --> 00:00:12.500\nzero one two\n\n"
    )


async def test_verbose_json_has_the_fields_of_openai(hearing: World) -> None:
    whole = (await ask(hearing, file=wave_file(31.0), **VERBOSE)).json()

    assert {name: whole[name] for name in ("task", "language", "duration", "usage")} == {
        "task": "transcribe",
        "language": "haitian creole",
        "duration": 31.0,
        "usage": {"type": "duration", "seconds": 31},
    }
    assert "words" not in whole
    assert whole["segments"][3] == {
        "id": 3,
        "seek": 3000,
        "start": 30.0,
        "end": 31.0,
        "text": " zero",
        "tokens": [100],
        "temperature": 0.0,
        "avg_logprob": -0.25,
        "compression_ratio": 1.5,
        "no_speech_prob": 0.01,
    }


@pytest.mark.parametrize(
    ("granularities", "expected"),
    [
        (["word"], {"words"}),
        (["segment"], {"segments"}),
        (["segment", "word"], {"segments", "words"}),
    ],
)
async def test_times_are_those_of_words_or_segments(
    hearing: World, scribe: FakeTranscriber, granularities: list[str], expected: set[str]
) -> None:
    fields: dict[str, Any] = {"timestamp_granularities[]": granularities}
    answer = await ask(hearing, **VERBOSE, **fields)

    whole = answer.json()
    assert {"words", "segments"} & whole.keys() == expected
    assert scribe.jobs[0].returns_words == ("words" in expected)
    if "words" in expected:
        times = {"word": "one", "start": 1.25, "end": 1.75}
        assert whole["words"][1] == {**times, "probability": 0.9}


async def test_words_have_their_attention_and_windows_their_spectrogram(hearing: World) -> None:
    recording = wave_file(32.0)
    answer = await ask(hearing, file=recording, **WORDS, return_attention="true")

    whole = answer.json()
    word = whole["words"][31]
    attention = np.frombuffer(base64.b64decode(word["attention"]), np.uint8)
    assert word["window_start"] == 30.0
    assert np.array_equal(attention, np.rint(np.linspace(0, 255, 1500)))
    first, second = whole["windows"]
    assert (first["start"], second["start"], first["seconds"]) == (0.0, 30.0, 30.0)
    shape = first["mels"], first["frames"]
    assert shape == (80, 3000)
    levels = np.frombuffer(base64.b64decode(first["spectrogram"]), np.uint8).reshape(shape)
    samples = np.frombuffer(recording, np.int16)[22 : 22 + 30 * RATE]
    features = log_mel(samples, AUDIO)
    scaled = (features - features.min()) / (features.max() - features.min())
    assert np.abs(levels / 255 - scaled).max() < 0.01


async def test_a_stream_has_deltas_and_then_the_whole(hearing: World) -> None:
    response = await ask(hearing, file=wave_file(21.0), stream="true")

    *deltas, last = events_of(response.text)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [delta["type"] for delta in deltas] == ["transcript.text.delta"] * 3
    assert last["type"] == "transcript.text.done"
    assert "".join(delta["delta"] for delta in deltas) == last["text"]
    assert last["text"].startswith("zero one") and last["text"].endswith("nine zero")
    assert last["usage"] == {
        "type": "tokens",
        "input_tokens": 1050,
        "input_token_details": {"text_tokens": 0, "audio_tokens": 1050},
        "output_tokens": 21,
        "total_tokens": 1071,
    }


async def test_a_verbose_stream_has_segments_with_their_words(hearing: World) -> None:
    response = await ask(hearing, file=wave_file(11.0), **WORDS, stream="true")
    whole = (await ask(hearing, file=wave_file(11.0), **WORDS)).json()

    *deltas, last = events_of(response.text)
    assert [delta["segment"]["id"] for delta in deltas] == [0, 1]
    words = [word for delta in deltas for word in delta["segment"]["words"]]
    assert words == last["words"] == whole["words"]
    assert last["language"] == whole["language"]


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_what_a_model_refuses_has_its_status(
    hearing: World, scribe: FakeTranscriber, stream: str
) -> None:
    scribe.failure = Overloaded(9)
    response = await ask(hearing, stream=stream)

    assert (response.status_code, response.json()["error"]["type"]) == (429, "rate_limit_error")


async def test_the_options_of_a_request_are_those_of_its_job(
    hearing: World, scribe: FakeTranscriber
) -> None:
    strategy: dict[str, Any] = {"chunking_strategy[type]": "server_vad"}
    fields: dict[str, Any] = {
        "language": "EN-us",
        "prompt": "Names.",
        "temperature": "0.4",
        "num_beams": "5",
    }
    fields |= {"seed": "8"}
    for chunking in (dict[str, Any](chunking_strategy="auto"), strategy):
        response = await ask(hearing, **fields, **chunking, priority="3", timeout_seconds="9")
        assert response.status_code == 200, response.text

    for job in scribe.jobs:
        assert (job.language, job.prompt, job.temperatures) == ("en", "Names.", (0.4,))
        assert job.decoding.beam is not None and job.decoding.beam.num_beams == 5
        assert job.decoding.sampling.seed == 8
        assert (job.decoding.priority, job.decoding.timeout_seconds) == (3, 9.0)
        assert job.is_parallel


async def test_translations_are_into_english(hearing: World, scribe: FakeTranscriber) -> None:
    whole = (await ask(hearing, TRANSLATIONS, **VERBOSE)).json()

    assert (whole["task"], whole["language"]) == ("translate", "english")
    assert scribe.jobs[0].translates and scribe.jobs[0].language is None
    refused = await ask(hearing, TRANSLATIONS, model="english")
    assert refused.status_code == 400
    assert "it does not translate speech" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"temperature": "1.5"}, "temperature", "less than or equal to 1"),
        ({"temperature": "nan"}, "temperature", "finite"),
        ({"response_format": "xml"}, "response_format", "verbose_json"),
        ({"response_format": "diarized_json"}, "response_format", "verbose_json"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "verbose_json"),
        ({**VERBOSE, "timestamp_granularities[]": "letter"}, "timestamp_granularities", "word"),
        ({"stream": "true", "response_format": "srt"}, "response_format", "not streamed"),
        ({"return_attention": "true", **VERBOSE}, "return_attention", "word"),
        (
            {"return_attention": "true", **WORDS, "chunking_strategy": "auto"},
            "return_attention",
            "chunking_strategy",
        ),
        ({"language": "xx"}, "language", "scribe has en, fr, ht"),
        ({"include[]": "logprobs"}, "include", "not supported here"),
        ({"known_speaker_names[]": "Ann"}, "known_speaker_names", "speakers"),
        ({"known_speaker_references[]": "data:"}, "known_speaker_references", "speakers"),
        ({"languages[]": "en"}, "languages", "one language"),
        ({"keywords[]": "Ann"}, "keywords", "prompt"),
        ({"hotwords": "Ann"}, "hotwords", "not supported here"),
        ({"chunking_strategy": "sentences"}, "chunking_strategy", "auto"),
        (
            {"chunking_strategy[type]": "server_vad", "chunking_strategy[threshold]": "0.3"},
            "chunking_strategy",
            "threshold",
        ),
        ({"chunking_strategy": '{"type"'}, "chunking_strategy", "delimiter"),
        ({"num_beams": "0"}, "num_beams", "between 1"),
        ({"model": "whisper-1"}, None, "no such model; there are"),
        ({"model": "story"}, "model", "it does not transcribe speech"),
        ({"prompt": "p" * 1001}, "prompt", "at most 1000 characters"),
    ],
)
@pytest.mark.parametrize("path", [PATH, TRANSLATIONS])
async def test_mistakes_are_named(
    hearing: World, fields: dict[str, Any], field: str | None, reason: str, path: str
) -> None:
    response = await ask(hearing, path, **fields)

    error = response.json()["error"]
    assert response.status_code in (400, 404, 413), response.text
    assert reason in error["message"]
    if field is not None:
        assert error["param"] == field


async def test_models_that_transcribe_do_nothing_else(hearing: World) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "p"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "p"}]}),
        ("/v1/embeddings", {"input": "p"}),
    ):
        response = await hearing.client.post(path, json={"model": "scribe", **body})
        assert response.status_code == 400
        assert "transcribes speech; it does not" in response.json()["error"]["message"]


async def test_the_model_says_what_it_hears_and_is_no_translator(hearing: World) -> None:
    model = (await hearing.client.get("/v1/models/scribe")).json()
    languages = (await hearing.client.get("/languages")).json()

    assert (model["task"], model["source_languages"]) == ("transcribe", ["en", "fr", "ht"])
    assert model["audio"]["sampling_rate"] == RATE and model["audio"]["translate"] == 21
    assert [language["code"] for language in languages] == ["en"]


@pytest.mark.parametrize(
    ("file", "name", "reason"),
    [
        (b"", "speech.wav", "is empty"),
        (b"It was a dark night.\n" * 100, "speech.wav", ""),
        (b"%PDF-1.7 and no more", "speech.mp3", ""),
        (wave_file()[:30], "speech.wav", ""),
        (wave_file(0.0), "speech.wav", ""),
    ],
    ids=["empty", "text", "pdf", "header alone", "no samples"],
)
async def test_files_without_sound_are_refused(
    hearing: World, scribe: FakeTranscriber, file: bytes, name: str, reason: str
) -> None:
    response = await ask(hearing, file=file, name=name)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "file"), response.text
    assert reason in error["reason"] and "Traceback" not in error["message"]
    assert scribe.jobs == []


async def test_the_log_has_no_name_of_a_file(
    hearing: World, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    whole = write_recording(tmp_path / "whole.flac", "flac", tone(9.0), RATE).read_bytes()
    answer = await ask(hearing, file=whole[: len(whole) // 2], name="my diagnosis.flac")
    refused = await ask(hearing, file=b"no sound", name="my diagnosis.wav")

    assert answer.status_code == 200
    assert "recording.flac ends early" in caplog.text
    assert "diagnosis" not in caplog.text
    assert 'got "my diagnosis.wav"' in refused.json()["error"]["message"]


async def test_a_form_without_a_file_and_other_bodies_are_refused(hearing: World) -> None:
    without = await hearing.client.post(PATH, data={"model": "scribe"}, files={"x": b""})
    text = await hearing.client.post(PATH, data={"model": "scribe", "file": "speech.wav"}, files={})
    plain = await hearing.client.post(PATH, json={"model": "scribe", "file": "speech.wav"})

    assert [answer.status_code for answer in (without, text, plain)] == [400, 400, 400]
    assert without.json()["error"]["param"] in ("file", "x")
    assert "multipart/form-data" in plain.json()["error"]["message"]


async def test_what_is_too_large_or_too_long_is_refused(
    tokenizer: Tokenizer, scribe: FakeTranscriber, tmp_path: Path
) -> None:
    access = {
        "audio_limits": AudioLimits(max_mib=1, max_seconds=5.0),
        "state": open_state(tmp_path),
    }
    async with made_world(tokenizer, access=access, others=[scribe]) as world:
        short = await ask(world, file=wave_file(4.9))
        long = await ask(world, file=wave_file(5.5))
        large = await ask(world, file=wave_file(40.0))

    assert [answer.status_code for answer in (short, long, large)] == [200, 400, 413]
    assert "0:00:05 that are allowed" in long.json()["error"]["message"]
    assert len(scribe.jobs) == 1


async def test_a_second_of_sound_is_billed_as_fifteen_characters(
    tokenizer: Tokenizer, scribe: FakeTranscriber, tmp_path: Path
) -> None:
    entry = KeyEntry(name="poor", sha256=hash_key("secret"), characters_per_month=100)
    write_keys(tmp_path / "keys.json", (entry,))
    access = {"keys": KeyRing(tmp_path / "keys.json", {}), "state": open_state(tmp_path / "state")}
    async with made_world(tokenizer, access=access, others=[scribe]) as world:
        unknown = await ask(world)
        world.client.headers.update(KEY)
        answered = await ask(world, file=wave_file(2.5))
        streamed = await ask(world, file=wave_file(2.0), stream="true")
        too_much = await ask(world, file=wave_file(5.0))
        usage = (await world.client.get("/v1/usage")).json()

    assert [a.status_code for a in (unknown, answered, streamed)] == [401, 200, 200]
    assert too_much.json()["error"]["code"] == "insufficient_quota"
    assert usage["character_count"] == 38 + 30
    assert [job.decoding.share for job in scribe.jobs] == ["poor", "poor"]


async def test_seconds_of_sound_are_counted(hearing: World) -> None:
    for fields in ({}, {"stream": "true"}):
        await ask(hearing, file=wave_file(2.0), **fields)
    await ask(hearing, temperature="7")

    sample = hearing.metrics.registry.get_sample_value
    assert sample("attendant_audio_seconds_total", {"model": "scribe", "replica": "r1"}) == 4.0
    labels = {"model": "scribe", "replica": "r1", "protocol": "openai", "outcome": "success"}
    assert sample("attendant_requests_total", labels) == 2.0


async def test_equal_requests_at_once_have_equal_bytes(hearing: World) -> None:
    recording = wave_file(35.0)
    answers = await asyncio.gather(*(ask(hearing, file=recording, **WORDS) for _ in range(6)))

    assert len({answer.content for answer in answers}) == 1


async def test_nothing_stays_in_the_folder_of_temporary_files(
    hearing: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for file in (wave_file(70.0), b"no sound" * 500_000):
        await ask(hearing, file=file)

    assert list(tmp_path.iterdir()) == []


async def test_a_full_disk_is_told(hearing: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/nowhere")
    response = await ask(hearing)

    assert response.status_code == 503
    assert "cannot use its state" in response.json()["error"]["message"]
