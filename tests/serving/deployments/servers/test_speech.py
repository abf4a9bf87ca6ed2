"""Transcriptions by a real server whose model is in another worker group."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.served import eventually
from tests.serving.audio.recordings import tone, wav_bytes
from tests.serving.deployments.servers.test_server import metric

PATH = "/v1/audio/transcriptions"
SHORT, LONG = wav_bytes(tone(2.5)), wav_bytes(tone(600.0))
PLAIN = {"model": "whisper", "temperature": "0.2"}


def leave_a_stream(url: str, request: dict[str, Any]) -> None:
    data = {**request["data"], "stream": "true"}
    with httpx.stream("POST", url, data=data, files=request["files"], timeout=60) as response:
        assert next(response.iter_lines()).startswith("event: transcript.text.delta")


def give_up_waiting(url: str, request: dict[str, Any]) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, **request, timeout=3)


def test_openais_client(server_url: str) -> None:
    with openai.OpenAI(base_url=f"{server_url}/v1", api_key="any") as client:
        plain = client.audio.transcriptions.create(
            model="whisper", file=("speech.wav", SHORT), temperature=0.2
        )
        events: list[Any] = [
            *client.audio.transcriptions.create(
                model="whisper", file=("speech.wav", SHORT), temperature=0.2, stream=True
            )
        ]
    *deltas, done = events
    assert plain.text == done.text
    assert "".join(event.delta for event in deltas) == done.text


@pytest.mark.parametrize("leave", [leave_a_stream, give_up_waiting])
def test_a_client_that_goes_away_frees_its_rows(
    server_url: str, client: httpx.Client, leave: Callable[..., None]
) -> None:
    labels = {"model": "whisper", "outcome": "cancelled"}
    before = metric(client, "attendant_requests_total", **labels)

    leave(server_url + PATH, {"data": PLAIN, "files": {"file": ("speech.wav", LONG)}})

    assert eventually(lambda: metric(client, "attendant_requests_total", **labels) == before + 1)
    running = "vllm:num_requests_running"
    assert eventually(lambda: metric(client, running, model_name="whisper") == 0)


def test_a_long_recording_reaches_the_other_group_and_has_its_timeout(server_url: str) -> None:
    data = {**PLAIN, "timeout_seconds": "2"}
    files = {"file": ("speech.wav", LONG)}
    response = httpx.post(server_url + PATH, data=data, files=files, timeout=60)

    assert response.status_code == 504, response.text
    assert "2 s were not enough" in response.json()["error"]["message"]


def test_tokens_of_another_group_and_seconds_of_sound_are_counted(
    server_url: str, client: httpx.Client
) -> None:
    before = metric(client, "attendant_audio_seconds_total", model="whisper")
    files = {"file": ("speech.wav", SHORT)}
    assert httpx.post(server_url + PATH, data=PLAIN, files=files, timeout=60).status_code == 200

    assert metric(client, "attendant_audio_seconds_total", model="whisper") == before + 2.5
