"""Labels of parts of texts, and words in the place of masks, from real models."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from serving.api.openai.classify import Classes, FilledTexts
from serving.pipelines.encoding import pipeline as encoding
from serving.text.tokenizer import Tokenizer
from tests.encoders import encoder_bundle
from tests.serving.api.real_models.test_encoders import TEXTS, error, world_of
from tests.serving.api.world import World


@pytest.fixture
async def world(tmp_path: Path, tokenizer: Tokenizer) -> AsyncIterator[World]:
    bundles = [encoder_bundle(kind, tmp_path) for kind in ("tagger", "masked")]
    async with world_of(bundles, tokenizer) as world:
        yield world


async def ask(world: World, path: str, **fields: Any) -> Any:
    response = await world.client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_parts_of_texts_are_labelled(world: World) -> None:
    result = await ask(world, "/v1/classify", model="tagger", input=TEXTS)
    TypeAdapter(Classes).validate_python(result)
    for text, each in zip(TEXTS, result["data"], strict=True):
        assert each["entities"]
        for entity in each["entities"]:
            assert entity["text"] == text[entity["start"] : entity["end"]]
            assert entity["label"] in ("PER", "LOC") and 0.2 < entity["score"] < 1
    alone = await ask(world, "/classify", model="tagger", input=TEXTS[2])
    assert alone["data"][0]["entities"] == result["data"][2]["entities"]
    fields = {"model": "tagger", "input": "x" * 100, "truncate_prompt_tokens": 10}
    [cut] = (await ask(world, "/v1/classify", **fields))["data"]
    assert max(entity["end"] for entity in cut["entities"]) <= 8


async def test_masks_are_filled(world: World) -> None:
    texts = ["A <mask> dog", "<mask><mask>"]
    fields = {"model": "masked", "input": texts, "top_k": 3}
    result = await ask(world, "/v1/fill-mask", **fields)
    TypeAdapter(FilledTexts).validate_python(result)
    [one], two = (item["masks"] for item in result["data"])
    assert [len(words) for words in (one, *two)] == [3, 3, 3]
    assert one == sorted(one, key=lambda word: -word["score"])
    for word in one:
        assert word["sequence"] == f"A {word['token_str']} dog"
    assert two[0][0]["sequence"] == f"{two[0][0]['token_str']}<mask>"
    ids = (await ask(world, "/tokenize", model="masked", prompt=texts[0]))["tokens"]
    by_ids = await ask(world, "/v1/fill-mask", model="masked", input=ids)
    assert len(by_ids["data"][0]["masks"][0]) == 5 and by_ids["data"][0]["masks"][0][:3] == one


WRONG: list[tuple[str, str, Any, str]] = [
    ("classify", "tagger", "x" * 63, "has 1 more"),
    ("classify", "tagger", [5, 6], "must be texts"),
    ("classify", "masked", "a", "does not classify texts"),
    ("embeddings", "tagger", "a", "labels parts of texts"),
    ("fill-mask", "tagger", "a", "does not fill masks"),
    ("fill-mask", "masked", "a dog", "must hold <mask>"),
    ("fill-mask", "masked", ["<mask>", "<mask>" * 33], "number 1 must hold <mask>, at most 32"),
]


async def test_wrong_questions_are_refused_by_name(world: World) -> None:
    for path, model, given, message in WRONG:
        result = await error(world, f"/v1/{path}", {"model": model, "input": given})
        assert result["param"] in ("input", "model") and message in result["message"], result
    for top_k in (0, 21):
        fields = {"model": "masked", "input": "<mask>", "top_k": top_k}
        assert (await error(world, "/v1/fill-mask", fields))["param"] == "top_k"


async def test_answers_that_repeat_long_texts_too_often_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"model": "masked", "input": ["<mask><mask>", "<mask>"], "top_k": 3}
    monkeypatch.setattr(encoding, "MOST_ANSWERED_TOKENS", 3 * (2 * 4 + 3))
    await ask(world, "/v1/fill-mask", **fields)
    result = await error(world, "/v1/fill-mask", {**fields, "top_k": 4})
    assert (
        result["param"] == "input" and '33 tokens together (got "44 tokens")' in result["message"]
    )
