"""Attention is asked for over HTTP by kind, layer and head, and told by real models."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serving.api.http import attention
from serving.bundle.manifest import Precision
from tests.serving.api.real_models.applications import client_over
from tests.tiny import tiny_bundle

Client = Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]
PROMPT = "look at it"  # a token each of its bytes, after the start token
SHAPE = (2, 4)  # layers, heads


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return lambda architecture: client_over(tiny_bundle(architecture, tmp_path, Precision.FP32))


async def ask(http: httpx.AsyncClient, path: str, **fields: Any) -> Any:
    response = await http.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def complete(http: httpx.AsyncClient, told: list[Any], **fields: Any) -> dict[str, Any]:
    body = {"model": "llama", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, **fields}
    body |= {"return_attention": told}
    [choice] = (await ask(http, "/v1/completions", **body))["choices"]
    return dict(choice)


async def test_completions_say_what_their_tokens_looked_at(client: Client) -> None:
    async with client("llama") as http:
        choice = await complete(http, ["decoder", {"kind": "decoder", "layers": [1]}])
        plain = await complete(http, [])
        [model] = (await http.get("/v1/models")).json()["data"]
    assert model["attention"] == {"decoder": {"num_layers": 2, "num_heads": 4}}
    assert choice["text"] == plain["text"] and "attention" not in plain
    mean, of_layer = choice["attention"]
    assert (mean["layers"], mean["heads"]) == ([], [])
    assert (of_layer["layers"], of_layer["heads"]) == ([1], [0, 1, 2, 3])
    assert mean["row_tokens"][: len(PROMPT) + 1] == ["", *PROMPT]
    assert mean["row_tokens"] == mean["column_tokens"]
    num_read = len(PROMPT) + 4  # the start token too; the last one generated was not read
    weights = np.array(mean["weights"])
    assert weights.shape == (1, 1, num_read, num_read)
    assert np.array(of_layer["weights"]).shape == (1, 4, num_read, num_read)
    assert np.abs(weights.sum(-1) - 1).max() < 1e-4 and not np.triu(weights[0, 0], 1).any()


async def test_a_stop_string_a_stream_and_several_choices(client: Client) -> None:
    body = {"max_tokens": 12, "ignore_eos": True}
    async with client("llama") as http:
        whole = await complete(http, ["decoder"], **body)
        stop = whole["text"][len(whole["text"]) // 2]
        cut = await complete(http, ["decoder"], stop=stop, **body)
        fields = {"model": "llama", "prompt": PROMPT, "temperature": 0} | body
        fields["return_attention"] = ["decoder"]
        streamed = await http.post("/v1/completions", json=fields | {"stream": True})
        two = await ask(http, "/v1/completions", **fields | {"n": 2, "temperature": 1, "seed": 1})
    *others, last = [
        json.loads(line.removeprefix("data: "))["choices"][0]
        for line in streamed.text.splitlines()
        if line.startswith("data: {")
    ]
    assert last["attention"] == whole["attention"]
    assert all("attention" not in item for item in others)
    num_cut = len(cut["attention"][0]["row_tokens"])
    result, expected = (np.array(item["attention"][0]["weights"]) for item in (cut, whole))
    assert len(PROMPT) < num_cut < len(whole["attention"][0]["row_tokens"])
    assert np.array_equal(result, expected[..., :num_cut, :num_cut])
    assert all(choice["attention"] for choice in two["choices"])


@pytest.mark.parametrize("fields", [{}, {"num_beams": 3}, {"stream": True}])
async def test_translations_say_it_by_sentence(client: Client, fields: dict[str, Any]) -> None:
    body = {"q": "a dog", "source": "en", "target": "fr", "max_new_tokens": 5, **fields}
    kinds = ["cross", "encoder", {"kind": "decoder"}]
    async with client("transformer") as http:
        response = await http.post("/translate", json=body | {"return_attention": kinds})
        assert response.status_code == 200, response.text
        *_, text = [line.removeprefix("data: ") for line in response.text.split("\n") if line]
        [[cross, encoder, decoder]] = json.loads(text)["attention"]
        if not fields:
            today = await ask(http, "/translate", **body, return_attention=True)
    assert [item["kind"] for item in (cross, encoder, decoder)] == ["cross", "encoder", "decoder"]
    assert encoder["row_tokens"] == [*"a dog", ""] == cross["column_tokens"]
    assert decoder["row_tokens"][0] == "" and decoder["heads"] == [0, 1, 2, 3]
    assert np.array(decoder["weights"]).shape[:2] == SHAPE
    for item in (cross, encoder, decoder):
        weights = np.array(item["weights"])
        assert weights.shape[2:] == (len(item["row_tokens"]), len(item["column_tokens"]))
        assert np.abs(weights.sum(-1) - 1).max() < 1e-4
    if not fields:
        [sentence] = today["attention"]
        assert sentence["target_tokens"] == cross["row_tokens"][: len(sentence["target_tokens"])]


async def test_a_given_translation_is_looked_at_too(client: Client) -> None:
    async with client("transformer") as http:
        body = {"q": "a dog", "translations": "oh", "source": "en", "target": "fr"}
        [score] = (await ask(http, "/score", **body, return_attention=["decoder", "cross"]))[
            "scores"
        ]
    decoder, cross = score["attention"]
    assert decoder["row_tokens"] == ["", "o", "h"]
    assert cross["row_tokens"] == ["o", "h", ""]


@pytest.mark.parametrize(
    ("architecture", "told", "message"),
    [
        ("llama", ["encoder"], "has no such attention: it has decoder"),
        ("transformer", ["memory"], "has no such attention: it has cross, encoder, decoder"),
        ("transformer", [{"kind": "encoder", "heads": [4]}], "no such head of encoder attention"),
        (
            "llama",
            [{"kind": "decoder", "heads": [0] * 5000}],
            "a head of decoder attention more than",
        ),
        ("ngram-lm", ["decoder"], "has no such attention: it has none"),
    ],
)
async def test_a_model_says_what_it_can_tell_of(
    client: Client, architecture: str, told: list[Any], message: str
) -> None:
    async with client(architecture) as http:
        if architecture == "transformer":
            body: dict[str, Any] = {"q": "a dog", "source": "en", "target": "fr"}
            response = await http.post("/translate", json=body | {"return_attention": told})
            error = response.json()["error"]
            assert error.startswith("return_attention: ")
        else:
            body = {"model": architecture, "prompt": PROMPT, "return_attention": told}
            response = await http.post("/v1/completions", json=body)
            assert response.json()["error"]["param"] == "return_attention"
            error = response.json()["error"]["message"]
    assert response.status_code == 400
    assert message in error


async def test_an_answer_has_an_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MAX_ATTENTION_WEIGHTS", 1000)
    async with client("llama") as http:
        body = {"model": "llama", "prompt": PROMPT, "max_tokens": 2}
        assert await complete(http, ["decoder"])
        description = [{"kind": "decoder"}]
        response = await http.post("/v1/completions", json=body | {"return_attention": description})
    assert response.status_code == 400
    assert "an answer may have 1000 weights" in response.json()["error"]["message"]
