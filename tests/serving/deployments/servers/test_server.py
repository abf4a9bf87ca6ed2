"""A real server over HTTP, asked by the clients people have."""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError

import httpx
import openai
import pytest
from libretranslatepy import LibreTranslateAPI
from prometheus_client.parser import text_string_to_metric_families

from tests.served import eventually

EN_FR = {"source": "en", "target": "fr"}
MODELS = [
    "transformer-en-fr",
    "bahdanau-en-fr",
    "llama-en",
    "far-llama",
    "far-transformer",
    "imported-llama",
    "imported-transformer",
    "far-german",
    "embedder",
    "captioner",
    "whisper",
]
FAR_TARGETS = ("fra_Latn", "por_Latn")
LONG = {"prompt": "a", "temperature": 0, "n": 64}


def metric(client: httpx.Client, name: str, **labels: str) -> float:
    text = client.get("/metrics").text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def leave_a_stream(url: str, body: dict[str, Any]) -> None:
    with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as response:
        assert next(response.iter_lines()).startswith("data: ")


def give_up_waiting(url: str, body: dict[str, Any]) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json=body, timeout=1)


def test_it_is_healthy_and_ready(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/-/healthz").text == "success"


@pytest.mark.parametrize("model", [None, "bahdanau-en-fr", "far-transformer"])
def test_translate(client: httpx.Client, model: str | None) -> None:
    texts = ["A dog runs.\n\n  It is black. It is fast.\t", "", "A cat."]

    body = {"q": texts, "model": model, **EN_FR}
    response = client.post("/translate", json=body)

    translated = response.json()["translatedText"]
    assert response.status_code == 200
    assert [bool(text) for text in translated] == [True, False, True]
    assert "\n\n  " in translated[0]
    assert translated[0].endswith("\t")


def test_libretranslates_client(server_url: str) -> None:
    api = LibreTranslateAPI(server_url)

    assert isinstance(api.translate("A dog.", "en", "fr"), str)
    assert api.languages() == [
        {"code": "en", "name": "English (en)", "targets": ["de", "fr", "por_Latn"]},
        {"code": "eng_Latn", "name": "English (eng_Latn)", "targets": ["de", *FAR_TARGETS]},
        {"code": "fr", "name": "French (fr)", "targets": ["de", "eng_Latn", "por_Latn"]},
        {
            "code": "fra_Latn",
            "name": "French (fra_Latn)",
            "targets": ["de", "eng_Latn", "por_Latn"],
        },
    ]
    assert api.translate("The dog runs in the garden.", "auto", "fr") == api.translate(
        "The dog runs in the garden.", "en", "fr"
    )
    [best, *_] = api.detect("Le chien court dans le jardin.")
    assert best["language"] == "fra_Latn" and best["confidence"] > 90
    with pytest.raises(HTTPError, match="HTTP Error 400"):
        api.translate("A dog.", "xx", "fr")


@pytest.mark.parametrize("model", ["llama-en", "far-llama"])
def test_openais_client(official: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "It was", "max_tokens": 20, "seed": 7}

    whole = official.completions.create(**asked)
    stream = official.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )

    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert last.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 20


@pytest.mark.parametrize("model", ["transformer-en-fr", "far-transformer"])
def test_translations_are_streamed(client: httpx.Client, model: str) -> None:
    asked = {"q": "A dog runs. Two cats sleep.\n\nThe end.", "model": model, **EN_FR}

    whole = client.post("/translate", json=asked)
    stream = client.post("/translate", json={**asked, "stream": True})

    assert stream.status_code == 200
    *pieces, last = [event.removeprefix("data: ") for event in stream.text.split("\n\n")[:-1]]
    assert last.encode() == whole.content
    joined = "".join(json.loads(piece)["delta"] for piece in pieces)
    assert joined == whole.json()["translatedText"]


def test_two_models_of_two_groups_translate_together(client: httpx.Client) -> None:
    asked = {"q": "A dog. A cat.", "source": "en", "target": "de"}
    french = client.post("/translate", json={**asked, "target": "fr", "model": MODELS[0]}).json()

    whole = client.post("/translate", json=asked)
    stream = client.post("/translate", json={**asked, "stream": True})

    german = {"q": french["translatedText"], "source": "fr", "target": "de"}
    alone = client.post("/translate", json=german).json()
    assert whole.json() == {**alone, "pivot": "fr"}
    assert stream.text.endswith(f"data: {whole.text}\n\n")


def test_a_chat_with_a_model_of_another_group(official: openai.OpenAI) -> None:
    """Its defaults are greedy decoding of 6 tokens."""
    asked: dict[str, Any] = {
        "model": "imported-llama",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }

    whole = official.chat.completions.create(**asked)
    stream = official.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )

    *chunks, last = list(stream)
    assert whole.choices[0].message.content
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == (
        whole.choices[0].message.content
    )
    assert whole.usage is not None and last.usage == whole.usage
    written = "system: Be brief.\nuser: Hi\nassistant:"
    assert whole.usage.prompt_tokens == 1 + len(written)  # one start token, the template's
    assert whole.usage.completion_tokens <= 6
    completed = official.completions.create(model="imported-llama", prompt=written)
    assert completed.choices[0].text == whole.choices[0].message.content
    assert completed.usage == whole.usage
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        official.chat.completions.create(**{**asked, "model": "far-llama"})


def test_many_languages_in_another_group(client: httpx.Client) -> None:
    asked = {"q": "A dog.", "source": "EN", "target": "pt"}
    answers = [
        client.post("/translate", json={**asked, **other}).json()
        for other in ({}, {"source": "eng_Latn", "target": "por_Latn"}, {"num_beams": 3})
    ]

    assert answers[0]["translatedText"]
    assert answers[0] == answers[1] == answers[2]


def test_logprobs_and_several_prompts(official: openai.OpenAI) -> None:
    completions = official.completions.create(
        model="llama-en", prompt=["a", "b"], n=2, logprobs=2, max_tokens=3, temperature=0
    )

    assert [choice.index for choice in completions.choices] == [0, 1, 2, 3]
    logprobs = completions.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens and logprobs.token_logprobs and logprobs.top_logprobs
    first = logprobs.top_logprobs[0]
    assert logprobs.token_logprobs[0] == pytest.approx(max(first.values()))


def test_embeddings_of_another_worker_group(official: openai.OpenAI, client: httpx.Client) -> None:
    before = metric(client, "vllm:prompt_tokens_total", model_name="embedder")
    texts = ["A dog runs.", "Snow", "A dog runs."]
    found = official.embeddings.create(model="embedder", input=texts, dimensions=8)
    first, other, again = (each.embedding for each in found.data)
    assert first == again != other and len(first) == 8
    assert abs(sum(value * value for value in first) - 1) < 1e-5
    after = metric(client, "vllm:prompt_tokens_total", model_name="embedder")
    assert after - before == found.usage.prompt_tokens > 0
    with pytest.raises(openai.BadRequestError, match="reads 64 tokens, and this has 38 more"):
        official.embeddings.create(model="embedder", input="x" * 100)
    with pytest.raises(openai.BadRequestError, match="completes prompts; it does not make emb"):
        official.embeddings.create(model="far-llama", input="a")


def test_models(official: openai.OpenAI) -> None:
    assert [model.id for model in official.models.list()] == MODELS
    assert official.models.retrieve("far-llama").id == "far-llama"
    with pytest.raises(openai.NotFoundError, match="no such model"):
        official.models.retrieve("none")


@pytest.mark.parametrize("model", ["llama-en", "far-llama"])
def test_an_error_of_the_engine_names_its_field(official: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        official.completions.create(model=model, prompt="a", max_tokens=100_000)
    assert caught.value.param == "max_tokens"
    assert "Traceback" not in caught.value.message


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/translate", b"{", 400),
        ("/translate", b'{"q": "\\ud800", "source": "en", "target": "fr"}', 400),
        ("/translate", b'{"q": "\\u0000", "source": "en", "target": "fr"}', 400),
        ("/translate", b'{"q": "a", "source": "xx", "target": "fr"}', 400),
        ("/translate", b'{"q": "a", "source": "en", "target": "fr", "model": "none"}', 404),
        ("/v1/completions", b"null", 400),
        ("/v1/completions", b'{"model": "none", "prompt": "a"}', 404),
        ("/v1/completions", b'{"model": "llama-en", "prompt": "\\ud800"}', 400),
        ("/v1/completions", b'{"model": "llama-en", "prompt": "a", "max_tokens": 1.5}', 400),
        ("/v1/completions", b'{"model": "transformer-en-fr", "prompt": "a", "echo": true}', 400),
        ("/nowhere", b"", 404),
    ],
)
def test_bad_input_is_refused_and_the_next_request_served(
    client: httpx.Client, path: str, content: bytes, status: int
) -> None:
    response = client.post(path, content=content)

    assert response.status_code == status
    error = response.json()["error"]
    assert isinstance(error, dict) == path.startswith("/v1/")
    assert client.post("/translate", json={"q": "a", **EN_FR}).status_code == 200


def test_100_kilobytes_of_text_are_translated(client: httpx.Client) -> None:
    text = "A dog runs through the snow with a red ball. " * 2200
    model = "far-transformer"

    response = client.post("/translate", json={"q": text, "model": model, **EN_FR}, timeout=240)

    assert response.status_code == 200
    assert len(response.json()["translatedText"]) > 2200


@pytest.mark.parametrize("model", ["llama-en", "far-llama"])
@pytest.mark.parametrize("leave", [leave_a_stream, give_up_waiting])
def test_a_client_that_goes_away_frees_its_rows(
    server_url: str, client: httpx.Client, leave: Callable[..., None], model: str
) -> None:
    labels = {"model": model, "outcome": "cancelled"}
    before = metric(client, "attendant_requests_total", **labels)
    max_tokens = client.get(f"/v1/models/{model}").json()["max_model_len"] - 16

    leave(f"{server_url}/v1/completions", {**LONG, "model": model, "max_tokens": max_tokens})

    assert eventually(lambda: metric(client, "attendant_requests_total", **labels) == before + 1)
    assert eventually(lambda: metric(client, "vllm:num_requests_running", model_name=model) == 0)


def test_many_clients_at_once_get_what_one_gets(client: httpx.Client) -> None:
    texts = [f"A dog and {number} cats." for number in range(32)]
    alone = [client.post("/translate", json={"q": text, **EN_FR}).json() for text in texts]
    together: dict[int, Any] = {}

    def ask(number: int) -> None:
        body = {"q": texts[number], **EN_FR}
        together[number] = client.post("/translate", json=body).json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [together[number] for number in range(32)] == alone


def test_metrics_are_of_every_replica(client: httpx.Client) -> None:
    assert metric(client, "attendant_slots", model="transformer-en-fr") == 64
    assert metric(client, "attendant_slots", model="far-llama") == 64
    before = metric(client, "attendant_requests_total", protocol="openai", outcome="success")
    tokens = metric(client, "vllm:generation_tokens_total", model_name="llama-en")

    body = {"model": "llama-en", "prompt": "a", "max_tokens": 5, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: {")]

    assert json.loads(lines[0].removeprefix("data: "))["object"] == "text_completion"
    after = metric(client, "attendant_requests_total", protocol="openai", outcome="success")
    assert after == before + 1
    assert metric(client, "vllm:generation_tokens_total", model_name="llama-en") > tokens
    assert metric(client, "attendant_step_seconds_count", model="llama-en", phase="decode") > 0
    assert metric(client, "vllm:time_to_first_token_seconds_count", model_name="llama-en") > 0
