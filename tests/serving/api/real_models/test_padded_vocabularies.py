"""Vocabularies with ids that the tokenizer has no token for: padding (T5, Qwen, Phi-3), holes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.bundle.manifest import Precision
from tests.serving.api.real_models.applications import client_over
from tests.tiny import tiny_bundle

NUM_TOKENS, VOCAB_SIZE = 259, 320
PADDING = 300
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 22]}},
    "required": ["n"],
    "additionalProperties": False,
}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 2, "seed": 3, "n": 3},
    "filtered": {"temperature": 1, "top_k": 40, "top_p": 0.9, "seed": 3, "n": 3},
    "beam": {"use_beam_search": True, "n": 3},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    return tiny_bundle("llama", folder, Precision.INT8, vocab_size=VOCAB_SIZE, context_length=128)


@pytest.fixture
async def client(bundle: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_over(bundle) as client:
        yield client


async def complete(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "llama", "prompt": "Once", "max_tokens": 20, "logprobs": 20, **fields}
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def names_ids(tokens: list[str]) -> set[int]:
    names = {token.removeprefix("token_id:") for token in tokens if token.startswith("token_id:")}
    return set(map(int, names))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
async def test_they_are_never_generated_but_told_among_the_likeliest(
    client: httpx.AsyncClient, search: dict[str, Any]
) -> None:
    likeliest: set[int] = set()
    for prompt in ("Once", "upon", "a", "time"):
        for choice in await complete(client, prompt=prompt, ignore_eos=True, **search):
            assert not names_ids(choice["logprobs"]["tokens"])
            for top in choice["logprobs"]["top_logprobs"]:
                assert len(top) >= 15  # parts of characters may share a name with none of these
                likeliest |= names_ids(list(top))
    assert likeliest and likeliest <= {*range(NUM_TOKENS, VOCAB_SIZE)}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
@pytest.mark.parametrize(
    "asked", [{"allowed_token_ids": [PADDING]}, {"logit_bias": {str(PADDING): 100}}], ids=str
)
async def test_asked_for_by_id_they_come_without_text(
    client: httpx.AsyncClient, search: dict[str, Any], asked: dict[str, Any]
) -> None:
    best, *_ = await complete(client, ignore_eos=True, max_tokens=4, **search, **asked)
    assert best["text"] == ""
    assert {*best["logprobs"]["tokens"]} <= {f"token_id:{PADDING}", ""}
    assert f"token_id:{PADDING}" in best["logprobs"]["tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_echoed_they_have_a_log_probability_and_no_text(
    client: httpx.AsyncClient, stream: bool
) -> None:
    body = {"model": "llama", "prompt": [1, 70, PADDING, 71], "echo": True, "max_tokens": 0}
    response = await client.post("/v1/completions", json={**body, "logprobs": 1, "stream": stream})
    assert response.status_code == 200, response.text
    lines = response.text.splitlines() if stream else ["data: " + response.text]
    parts = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    tokens = [t for part in parts if part["logprobs"] for t in part["logprobs"]["tokens"]]
    logprobs = [x for part in parts if part["logprobs"] for x in part["logprobs"]["token_logprobs"]]
    offsets = [x for part in parts if part["logprobs"] for x in part["logprobs"]["text_offset"]]
    assert tokens[2] == f"token_id:{PADDING}" and len(tokens) == 4
    assert logprobs[0] is None and -20 < logprobs[2] < 0
    assert offsets == [0, 0, 1, 1]
    assert len("".join(part["text"] for part in parts)) == 2


async def test_a_grammar_never_takes_them(client: httpx.AsyncClient) -> None:
    for search in SEARCHES.values():
        for choice in await complete(client, guided_json=SCHEMA, max_tokens=60, **search):
            assert json.loads(choice["text"])["n"] in (1, 22)


async def test_what_is_beyond_the_model_is_refused(client: httpx.AsyncClient) -> None:
    for asked in ({"prompt": [VOCAB_SIZE]}, {"allowed_token_ids": [VOCAB_SIZE]}):
        body = {"model": "llama", "prompt": "a", **asked}
        response = await client.post("/v1/completions", json=body)
        assert response.status_code == 400, response.text
