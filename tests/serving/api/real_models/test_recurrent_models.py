"""Completions of recurrent models, which read a prompt token by token or many at once: served like
those that attend.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from models.checkpoint import load_checkpoint
from models.contract import AnyModel
from models.decoding import greedy, teacher_forced_log_probabilities
from models.loading import load_module
from serving.bundle.manifest import TOKENIZER_FILE, Precision
from serving.text.tokenizer import Tokenizer
from tests.serving.api.real_models.applications import CONFIG, client_over
from tests.tiny import tiny_bundle

FAMILIES = ["key-value-lm", "mamba", "mamba2", "ngram-lm", "recurrent-lm", "rwkv7"]
BOS = 1
PROMPT = list(range(70, 95))


@pytest.fixture(scope="module", params=FAMILIES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(request.param, tmp_path_factory.mktemp("bundle"), Precision.FP32)


@pytest.fixture
def module(bundle: Path) -> AnyModel:
    """Load what the bundle was made of, which lies beside it."""
    return load_module(load_checkpoint(bundle.parent / bundle.name.removesuffix("-fp32")))


@pytest.fixture(params=[0, 2**24], ids=["no caches", "caches"])
async def client(request: pytest.FixtureRequest, bundle: Path) -> AsyncIterator[httpx.AsyncClient]:
    sizes = {"prefix_cache_bytes": request.param, "encoder_cache_bytes": request.param}
    async with client_over(bundle, replace(CONFIG, **sizes)) as client:
        yield client


async def complete(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    [model] = (await client.get("/v1/models")).json()["data"]
    body = {"model": model["id"], "prompt": [BOS, *PROMPT], **fields}
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


async def test_a_prompt_is_continued_as_torch_continues_it(
    client: httpx.AsyncClient, module: AnyModel, bundle: Path
) -> None:
    expected = Tokenizer(bundle / TOKENIZER_FILE).decode(greedy(module, None, PROMPT, 20))
    for _ in range(2):  # the second time there may be states to find
        [choice] = await complete(client, max_tokens=20, temperature=0)
        assert choice["text"] == expected != ""


async def test_a_prompt_is_scored_as_torch_scores_it(
    client: httpx.AsyncClient, module: AnyModel
) -> None:
    logp = teacher_forced_log_probabilities(module, [], [BOS, *PROMPT]).numpy()
    expected = logp[np.arange(len(PROMPT)), PROMPT]
    [choice] = await complete(client, max_tokens=0, echo=True, logprobs=0)
    first, *others = choice["logprobs"]["token_logprobs"]
    assert first is None
    np.testing.assert_allclose(others, expected, atol=1e-4)


async def test_samples_and_beams_of_one_prompt(client: httpx.AsyncClient) -> None:
    samples = await complete(client, n=3, max_tokens=12, seed=5)
    again = await complete(client, n=3, max_tokens=12, seed=5)
    beams = await complete(client, n=3, max_tokens=12, use_beam_search=True)
    assert samples == again
    assert len({choice["text"] for choice in samples}) == 3
    assert [choice["index"] for choice in beams] == [0, 1, 2]
