"""OpenAI's client asks a real engine, over a socket, for what a random Whisper hears."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI

from serving.audio.decoding import Samples
from serving.bundle.manifest import Precision
from tests.served import eventually
from tests.serving.api.openai.listening import listening
from tests.serving.api.real_models.applications import app_over
from tests.serving.audio.recordings import tone, wav_bytes
from tests.tiny import SOUND_READER, tiny_bundle

MODEL = SOUND_READER
SECONDS = 2.5  # windows have 2 s


def chirps(seconds: float) -> Samples:
    """Return tones that come and go, so that windows differ."""
    sound = tone(seconds)
    sound[: len(sound) // 3] //= 5
    sound[len(sound) // 2 : len(sound) // 2 + 4000] = 0
    return sound


RECORDING = wav_bytes(chirps(SECONDS))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    bundle = tiny_bundle(SOUND_READER, tmp_path_factory.mktemp("hearing"), Precision.INT8)

    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with app_over(bundle) as app:
            yield app

    with listening(app) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


def transcribe(client: openai.OpenAI, **options: Any) -> Any:
    arguments: dict[str, Any] = {
        "model": MODEL,
        "file": ("speech.wav", RECORDING),
        "temperature": 0.2,
    }
    return client.audio.transcriptions.create(**arguments | options)


def test_all_formats_tell_the_same(client: openai.OpenAI) -> None:
    plain = transcribe(client)
    text = transcribe(client, response_format="text")
    verbose = transcribe(client, response_format="verbose_json")
    srt, vtt = (transcribe(client, response_format=name) for name in ("srt", "vtt"))

    assert plain.text == verbose.text == text.removesuffix("\n")
    assert (plain.usage.type, plain.usage.seconds) == ("duration", 3)
    assert verbose.duration == SECONDS and verbose.language in ("english", "french")
    assert verbose.text == "".join(segment.text for segment in verbose.segments).strip()
    assert [segment.id for segment in verbose.segments] == [*range(len(verbose.segments))]
    starts = [segment.start for segment in verbose.segments]
    assert starts == sorted(starts) and starts[0] >= 0 and starts[-1] < 4
    assert srt.count(" --> ") == vtt.count(" --> ") == len(verbose.segments)
    assert vtt.startswith("WEBVTT\n\n")


def test_words_are_those_of_the_text(client: openai.OpenAI) -> None:
    granularities = ["word", "segment"]
    answer = transcribe(
        client,
        response_format="verbose_json",
        timestamp_granularities=granularities,
        extra_body={"return_attention": True},
    )

    text = "".join(word.word for word in answer.words)
    assert text and text == "".join(answer.text.split())
    assert all(word.start <= word.end for word in answer.words)
    starts = {window["start"] for window in answer.windows}
    assert {word.window_start for word in answer.words} <= starts
    assert {(window["mels"], window["frames"]) for window in answer.windows} == {(20, 200)}


def test_a_stream_tells_the_whole(client: openai.OpenAI) -> None:
    whole = transcribe(client)
    events = list(transcribe(client, stream=True))

    *deltas, done = events
    assert "".join(event.delta for event in deltas) == done.text == whole.text
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert done.usage.input_tokens == SECONDS * 50


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI ends its own
def test_it_translates(client: openai.OpenAI) -> None:
    file = ("speech.wav", RECORDING)
    plain = client.audio.translations.create(model=MODEL, file=file)
    verbose = client.audio.translations.create(
        model=MODEL, file=file, response_format="verbose_json"
    )

    assert plain.text == verbose.text
    assert verbose.language == "english"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunking_strategy": "auto"},
        {"chunking_strategy": {"type": "server_vad"}},
        {"temperature": 0.7, "extra_body": {"seed": 4}},
        {"extra_body": {"num_beams": 3}, "language": "fr", "prompt": "Well."},
    ],
    ids=["in turn", "parallel", "server_vad", "sampled", "beams"],
)
def test_equal_requests_at_once_have_equal_bytes(
    client: openai.OpenAI, options: dict[str, Any]
) -> None:
    def ask(_: int) -> str:
        answer = client.audio.transcriptions.with_raw_response.create(
            model=MODEL,
            file=("speech.wav", RECORDING),
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
            **options,
        )
        return answer.text

    alone = ask(0)
    with ThreadPoolExecutor(3) as pool:
        answers = {*pool.map(ask, range(3))}
    assert answers == {alone}


@pytest.mark.parametrize("seconds", [0.2, 2.0, 7.3])
def test_silence_and_short_sound_are_answered(client: openai.OpenAI, seconds: float) -> None:
    silence = wav_bytes(tone(seconds, amplitude=0))
    for options in ({}, {"chunking_strategy": "auto"}):
        answer = transcribe(
            client, file=("silence.wav", silence), response_format="verbose_json", **options
        )
        assert answer.duration == seconds


def test_mistakes_are_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        transcribe(client, model="whisper-1")
    with pytest.raises(openai.BadRequestError, match="no recording in a format"):
        transcribe(client, file=("speech.wav", b"It was a dark night."))
    with pytest.raises(openai.BadRequestError, match="model whisper has en, fr"):
        transcribe(client, language="de")


def test_a_client_that_leaves_a_stream_frees_its_rows(url: str) -> None:
    long = wav_bytes(chirps(120.0))
    data = {"model": MODEL, "stream": "true"}
    files = {"file": ("speech.wav", long)}
    with httpx.stream("POST", f"{url}/v1/audio/transcriptions", data=data, files=files) as answer:
        assert answer.status_code == 200
        next(answer.iter_lines())

    def outcome() -> str:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        [value] = [
            line.split()[-1]
            for line in lines
            if line.startswith("attendant_requests_running{") and 'model="whisper"' in line
        ]
        return value

    assert eventually(lambda: outcome() == "0.0")
    assert 'outcome="cancelled"' in httpx.get(f"{url}/metrics").text


def test_a_socket_that_closes_within_an_upload_leaves_nothing(url: str, tmp_path: Path) -> None:
    port = int(url.rpartition(":")[2])
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost:{port}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 3000000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + RECORDING)
        time.sleep(0.2)

    def is_done() -> bool:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        reading = [line for line in lines if line.startswith("attendant_requests_reading{")]
        return all(line.endswith(" 0.0") for line in reading)

    assert eventually(is_done)


def test_fields_of_a_raw_form_are_read(url: str) -> None:
    """As curl sends them: -F file=@speech.wav -F model=whisper."""
    parts = {"model": MODEL, "response_format": "verbose_json", "timestamp_granularities[]": "word"}
    body = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    ).encode()
    body += b'--b\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n'
    body += b"Content-Type: audio/wav\r\n\r\n" + RECORDING + b"\r\n--b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    path = f"{url}/v1/audio/transcriptions"
    answer = httpx.post(path, content=body, headers=headers, timeout=60)

    assert answer.status_code == 200, answer.text
    assert answer.json().keys() >= {"task", "language", "duration", "text", "words", "usage"}
    assert "segments" not in answer.json()


async def test_an_asynchronous_client_streams(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
        streams = [
            client.audio.transcriptions.create(
                model=MODEL, file=("speech.wav", RECORDING), stream=True
            )
            for _ in range(3)
        ]
        texts = [
            [event async for event in stream][-1].model_dump_json()
            for stream in await asyncio.gather(*streams)
        ]
    assert len({*texts}) == 1 and json.loads(texts[0])["type"] == "transcript.text.done"
