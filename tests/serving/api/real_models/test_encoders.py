"""Embeddings, classes and rankings: real models behind the application, in the known shapes."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from fastapi import FastAPI
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr, TypeAdapter

from serving.api.openai.classify import Classes
from serving.api.openai.protocol import EmbeddingList, PairScores, Ranking
from serving.engine.config import EngineConfig
from serving.pipelines.loading import LoadedModel, load_model
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.encoders import encoder_bundle
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.api.openai.test_batches import lines, results, wait_until_ended
from tests.serving.api.world import World

TEXTS = ["A dog runs.", "Snow", "Ein längerer Text über Hunde im Schnee"]
KINDS = ("embedder", "classifier", "reranker")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return [encoder_bundle(kind, folder) for kind in KINDS]


@asynccontextmanager
async def world_of(
    bundles: list[Path], tokenizer: Tokenizer, **access: Any
) -> AsyncIterator[World]:
    """The scripted translator and generator, and beside them real encoders."""
    async with AsyncExitStack() as stack:
        config = EngineConfig(slots=16, threads=1)
        models: list[LoadedModel] = [
            load_model(bundle, config, max_segments=20) for bundle in bundles
        ]
        for model in models:
            stack.push_async_callback(model.engine.shutdown)
        others = [model.pipeline for model in models]
        created = made_world(tokenizer, others=others, access=access)
        yield await stack.enter_async_context(created)


@pytest.fixture
async def world(bundles: list[Path], tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with world_of(bundles, tokenizer) as world:
        yield world


async def embeddings(world: World, **fields: Any) -> dict[str, Any]:
    body = {"model": "embedder", **fields}
    response = await world.client.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def rows(world: World, **fields: Any) -> np.ndarray:
    data = (await embeddings(world, **fields))["data"]
    return np.array([item["embedding"] for item in data], np.float32)


async def error(world: World, path: str, fields: dict[str, Any], status: int = 400) -> Any:
    response = await world.client.post(path, json=fields)
    assert response.status_code == status, response.text
    return response.json()["error"]


async def test_an_answer_has_openais_shape(world: World) -> None:
    result = await embeddings(world, input=TEXTS, user={"id": 7}, store="yes")
    TypeAdapter(EmbeddingList).validate_python(result)
    assert [*result] == ["object", "data", "model", "usage"]
    assert [item["index"] for item in result["data"]] == [0, 1, 2]
    num_tokens = sum(len(text.encode()) + 2 for text in TEXTS)
    assert result["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


async def test_a_text_has_the_same_bits_however_it_is_asked_for(world: World) -> None:
    together = await rows(world, input=TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert (await rows(world, input=text)).tobytes() == row.tobytes()
    answer = await world.client.post("/tokenize", json={"model": "embedder", "prompt": TEXTS[0]})
    ids = answer.json()["tokens"]
    assert (await rows(world, input=ids)).tobytes() == together[:1].tobytes()
    assert (await rows(world, input=[ids, ids[:3]]))[:1].tobytes() == together[:1].tobytes()
    data = (await embeddings(world, input=TEXTS, encoding_format="base64"))["data"]
    assert b"".join(base64.b64decode(item["embedding"]) for item in data) == together.tobytes()
    many = await asyncio.gather(*(rows(world, input=text) for text in TEXTS * 4))
    for found, row in zip(many, [*together] * 4, strict=True):
        assert found.tobytes() == row.tobytes()


async def test_dimensions_and_prompts(world: World) -> None:
    whole, short = await rows(world, input=TEXTS), await rows(world, input=TEXTS, dimensions=8)
    assert short.shape == (3, 8) and np.allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert np.allclose(short / short[:, :1], whole[:, :8] / whole[:, :1], rtol=1e-4)
    request = await rows(world, input=TEXTS[0], prompt_name="query")
    assert request.tobytes() == (await rows(world, input=f"query: {TEXTS[0]}")).tobytes()


async def test_what_is_too_long_is_refused_or_cut(world: World) -> None:
    request = {"model": "embedder", "input": ["short", "x" * 100]}
    result = await error(world, "/v1/embeddings", request)
    assert "reads 64 tokens, and number 1 has 38 more" in result["message"]
    assert result["param"] == "input" and result["type"] == "invalid_request_error"
    cut = await rows(world, input="x" * 100, truncate_prompt_tokens=-1)
    assert cut.tobytes() == (await rows(world, input="x" * 62)).tobytes()
    cut = await rows(world, input="x" * 100, truncate_prompt_tokens=10)
    assert cut.tobytes() == (await rows(world, input="x" * 8)).tobytes()


HOSTILE: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "input"),
    ({"input": None}, 400, "input"),
    ({"input": ""}, 400, "input"),
    ({"input": []}, 400, "input"),
    ({"input": [[]]}, 400, "input"),
    ({"input": ["a", ""]}, 400, "input"),
    ({"input": ["a"] * 21}, 400, "input"),
    ({"input": ["a"] * 10_000}, 400, "input"),
    ({"input": [[5]] * 2049}, 400, "input"),
    ({"input": [5] * 10_000}, 413, "input"),
    ({"input": ["a"] + [5] * 10_000}, 400, "input"),
    ({"input": ["a", [5]]}, 400, "input"),
    ({"input": 5}, 400, "input"),
    ({"input": {"text": "a"}}, 400, "input"),
    ({"input": [True]}, 400, "input"),
    ({"input": [1.5]}, 400, "input"),
    ({"input": [float("nan")]}, 400, "input"),
    ({"input": [-1]}, 400, "input"),
    ({"input": [259]}, 400, "input"),
    ({"input": [2**70]}, 400, "input"),
    ({"input": "half \ud800"}, 400, "input"),
    ({"input": "nul \0"}, 400, "input"),
    ({"input": "a" * 1001}, 413, "input"),
    ({"input": "a", "dimensions": 33}, 400, "dimensions"),
    ({"input": "a", "dimensions": 0}, 400, "dimensions"),
    ({"input": "a", "dimensions": 10**30}, 400, "dimensions"),
    ({"input": "a", "dimensions": float("nan")}, 400, "dimensions"),
    ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format"),
    ({"input": "a", "truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens"),
    ({"input": "a", "truncate_prompt_tokens": 2}, 400, "truncate_prompt_tokens"),
    ({"input": "a", "truncate_prompt_tokens": -2}, 400, "truncate_prompt_tokens"),
    ({"input": "a", "prompt_name": "title"}, 400, "prompt_name"),
    ({"input": "a", "priority": 10**9}, 400, "priority"),
    ({"input": "a", "temperature": 1.0}, 400, "temperature"),
]


async def test_hostile_bodies_are_refused_by_name(world: World) -> None:
    for fields, status, field in HOSTILE:
        content = json.dumps({"model": "embedder", **fields})
        response = await world.client.post("/v1/embeddings", content=content)
        assert response.status_code == status, (fields, response.text)
        assert response.json()["error"]["param"] == field, fields
    assert (await rows(world, input="still here")).shape == (1, 32)


async def test_a_classifier_tells_labels_and_probabilities(world: World) -> None:
    for path in ("/classify", "/v1/classify"):
        body = {"model": "classifier", "input": TEXTS}
        response = await world.client.post(path, json=body)
        answer = response.json()
        TypeAdapter(Classes).validate_python(answer)
        for index, each in enumerate(answer["data"]):
            assert (each["index"], each["num_classes"]) == (index, 3)
            assert abs(sum(each["probs"]) - 1) < 1e-6
            best = int(np.argmax(each["probs"]))
            assert each["label"] == ("good", "bad", "so-so")[best]
    listed = (await world.client.get("/v1/models/classifier")).json()
    assert listed["task"] == "classify" and listed["max_model_len"] == 64
    assert listed["encoder"]["labels"] == ["good", "bad", "so-so"]


async def test_documents_are_ranked_the_best_first(world: World) -> None:
    body: dict[str, Any] = {"model": "reranker", "query": "dogs?", "documents": TEXTS}
    response = await world.client.post("/v1/rerank", json=body)
    answer = response.json()
    TypeAdapter(Ranking).validate_python(answer)
    scores = [item["relevance_score"] for item in answer["results"]]
    assert scores == sorted(scores, reverse=True) and len({*scores}) == 3
    assert all(0 < score < 1 for score in scores)
    for item in answer["results"]:
        assert item["document"] == {"text": TEXTS[item["index"]]}
    documents = [{"text": text} for text in TEXTS]
    few = {**body, "documents": documents, "top_n": 1, "return_documents": False}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        [best] = (await world.client.post(path, json=few)).json()["results"]
        assert best == {key: answer["results"][0][key] for key in ("index", "relevance_score")}
    pairs = {"model": "reranker", "text_1": "dogs?", "text_2": TEXTS}
    scored = (await world.client.post("/v1/score", json=pairs)).json()
    TypeAdapter(PairScores).validate_python(scored)
    by_index = {item["index"]: item["relevance_score"] for item in answer["results"]}
    assert {item["index"]: item["score"] for item in scored["data"]} == by_index


async def test_embeddings_rank_by_their_cosine(world: World) -> None:
    body: dict[str, Any] = {"model": "embedder", "query": "dogs?", "documents": TEXTS}
    answer = (await world.client.post("/v1/rerank", json=body)).json()
    TypeAdapter(Ranking).validate_python(answer)
    query, *documents = await rows(world, input=["dogs?", *TEXTS])
    for result in answer["results"]:
        document = documents[result["index"]]
        cosine = query @ document / np.linalg.norm(query) / np.linalg.norm(document)
        assert result["relevance_score"] == pytest.approx(float(cosine), abs=1e-6)
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert "cosine" in answer["meta"]["warnings"][0]


RANK: dict[str, Any] = {"model": "reranker", "query": "dogs?", "documents": TEXTS}


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/rerank", RANK | {"documents": []}, 400, "documents"),
    ("/v1/rerank", RANK | {"documents": ["a", 5]}, 400, "documents"),
    ("/v1/rerank", RANK | {"documents": [{"title": "a"}]}, 400, "documents"),
    ("/v1/rerank", RANK | {"documents": ["a"] * 10_000}, 413, "documents"),
    ("/v1/rerank", RANK | {"documents": ["x" * 70]}, 400, "documents"),
    ("/v1/rerank", RANK | {"query": ["a"]}, 400, "query"),
    ("/v1/rerank", RANK | {"top_n": -1}, 400, "top_n"),
    ("/v1/rerank", RANK | {"model": "classifier"}, 400, "model"),
    ("/v1/rerank", RANK | {"model": "story"}, 400, "model"),
    ("/v1/rerank", RANK | {"model": "nobody"}, 404, "model"),
    ("/v1/score", {"model": "reranker", "text_1": ["a"], "text_2": ["b", "c"]}, 400, "text_2"),
    ("/v1/score", {"model": "reranker", "text_1": "a", "text_2": []}, 400, "text_2"),
    ("/classify", {"model": "classifier", "input": []}, 400, "input"),
    ("/classify", {"model": "embedder", "input": "a"}, 400, "model"),
]


async def test_wrong_questions_are_refused_by_name(world: World) -> None:
    for path, fields, status, field in WRONG:
        assert (await error(world, path, fields, status))["param"] == field, fields


async def test_an_empty_list_of_seconds_is_called_empty(world: World) -> None:
    result = await error(world, "/v1/score", {"model": "reranker", "text_1": "a", "text_2": []})
    assert "text_2: must not be empty" in result["message"]


async def test_a_model_for_something_else_says_what_it_does(world: World) -> None:
    models = (await world.client.get("/v1/models")).json()["data"]
    names = {model["task"]: model["id"] for model in models}
    for task, does in (("translate", "translates"), ("generate", "completes prompts")):
        body = {"model": names[task], "input": "a"}
        result = await error(world, "/v1/embeddings", body)
        assert f"{does}; it does not make embeddings" in result["message"]
    completion = {"model": "embedder", "prompt": "a"}
    result = await error(world, "/v1/completions", completion)
    assert "makes embeddings; it does not complete prompts" in result["message"]
    chat = {"model": "embedder", "messages": [{"role": "user", "content": "a"}]}
    assert (await error(world, "/v1/chat/completions", chat))["param"] == "model"
    body = {"q": "a", "source": "en", "target": "fr", "model": "classifier"}
    response = await world.client.post("/translate", json=body)
    assert response.status_code == 400
    assert "classifies texts; it does not translate" in response.json()["error"]


async def test_batches_take_embeddings(
    bundles: list[Path], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with (
        world_of(bundles[:1], tokenizer, state=open_state(tmp_path)) as world,
        world.app.router.lifespan_context(world.app),
    ):
        http: Any = world.client
        client = openai.AsyncOpenAI(
            base_url="http://attendant/v1", api_key="x", http_client=http, max_retries=0
        )
        content = lines({"model": "embedder", "input": TEXTS}, url="/v1/embeddings")
        file = await client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        batch = await wait_until_ended(client, batch.id)
        [result] = await results(client, batch.output_file_id)
        vectors = [item["embedding"] for item in result["response"]["body"]["data"]]
        assert np.array(vectors, np.float32).tobytes() == (await rows(world, input=TEXTS)).tobytes()


@pytest.fixture(scope="module")
def url(bundles: list[Path], tokenizer: Tokenizer) -> Iterator[str]:
    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with world_of(bundles, tokenizer) as world:
            yield world.app

    with listening(app) as found:
        yield found


def test_langchain_embeds(url: str) -> None:
    model = OpenAIEmbeddings(
        model="embedder",
        base_url=f"{url}/v1",
        api_key=SecretStr("any"),
        check_embedding_ctx_length=False,  # else it sends the ids of another tokenizer
    )
    vectors = model.embed_documents(TEXTS)
    assert vectors[0] == model.embed_query(TEXTS[0]) and len({*map(tuple, vectors)}) == 3


def test_the_official_client_embeds(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        result = client.embeddings.create(model="embedder", input=TEXTS)
        plain = client.embeddings.create(model="embedder", input=TEXTS, encoding_format="float")
        assert result.usage.prompt_tokens == plain.usage.total_tokens
        for mine, other in zip(result.data, plain.data, strict=True):
            assert mine.embedding == other.embedding
        [short] = client.embeddings.create(model="embedder", input="a", dimensions=5).data
        assert len(short.embedding) == 5
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="embedder", input="a", dimensions=500)
        assert caught.value.param == "dimensions"
