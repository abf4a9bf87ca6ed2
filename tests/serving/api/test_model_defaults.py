"""Tests that what a bundle brings along counts in every protocol: defaults of requests, and
languages.
"""

from typing import Any

import httpx

from serving.bundle.manifest import LanguageIds, Tokens
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import BOS, EOS

SAMPLED = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.2, "max_new_tokens": 7}
SEARCHED = {"num_beams": 5, "length_penalty": 0.5, "no_repeat_ngram_size": 3, "min_tokens": 2}
ASKED = {"model": "story", "messages": [{"role": "user", "content": "a"}]}


async def post(world: World, path: str, **body: Any) -> httpx.Response:
    response = await world.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response


async def test_chats_and_completions(tokenizer: Tokenizer) -> None:
    generator = {"chat_template": CHAT_TEMPLATE, "generation": SAMPLED}
    async with made_world(tokenizer, generator) as world:
        await post(world, "/v1/chat/completions", **ASKED)
        await post(world, "/v1/completions", model="story", prompt="a")
        await post(world, "/v1/completions", model="story", prompt="a", max_tokens=9, top_k=0)
        await post(world, "/v1/chat/completions", **ASKED, temperature=0)
        await post(world, "/v1/chat/completions", **ASKED, num_beams=2, max_tokens=3)
        listed = (await world.client.get("/v1/models/story")).json()
        chat, plain, defaults, greedy, searched = world.generator_engine.requests

    for request in (chat, plain):
        assert (request.sampling.temperature, request.sampling.top_k) == (0.6, 20)
        assert (request.processors.repetition_penalty, request.max_new_tokens) == (1.2, 7)
    assert (defaults.sampling.temperature, defaults.sampling.top_k, defaults.max_new_tokens) == (
        0.6,
        0,
        9,
    )
    assert (greedy.sampling.temperature, greedy.sampling.top_k) == (0, 0)
    assert searched.beam is not None and searched.sampling.temperature == 0
    assert listed["generation"] == SAMPLED


async def test_completions_have_16_tokens_where_nobody_says(world: World) -> None:
    await post(world, "/v1/completions", model="story", prompt="a")

    assert world.generator_engine.requests[0].max_new_tokens == 16


async def test_translations(tokenizer: Tokenizer) -> None:
    request_body = {"q": "a", "source": "en", "target": "fr"}
    async with made_world(tokenizer, generation=SEARCHED) as world:
        await post(world, "/translate", **request_body)
        await post(world, "/translate", **request_body, num_beams=2, length_penalty=1.0)
        await post(world, "/translate", **request_body, temperature=0.7, min_tokens=0)
        await post(world, "/translate", **request_body, alternatives=4)
        requests = world.translator_engine.requests

    widths = [request.beam.num_beams if request.beam else None for request in requests]
    assert widths == [5, 2, None, 10]
    penalties = [request.beam.length_penalty if request.beam else None for request in requests]
    assert penalties == [0.5, 1.0, None, 0.5]
    assert [request.processors.min_tokens for request in requests] == [2, 2, 0, 2]
    assert {request.processors.no_repeat_ngram_size for request in requests} == {3}


async def test_a_translation_is_as_long_as_its_source_lets_it(tokenizer: Tokenizer) -> None:
    request_body = {"q": "abc", "source": "en", "target": "fr"}
    generation = {"max_length_factor": 0.6, "max_new_tokens": 9}
    async with made_world(tokenizer, generation=generation) as world:
        cut = (await post(world, "/translate", **request_body)).json()
        with_a_limit = (await post(world, "/translate", **request_body, max_new_tokens=20)).json()
        long = (await post(world, "/translate", **{**request_body, "q": "a" * 40})).json()

    assert cut["translatedText"] == "ABC"  # 0.6 times 4 tokens, the end among them
    assert with_a_limit["translatedText"] == "ABC"
    assert long["translatedText"] == "A" * 9
    limits = [request.max_new_tokens for request in world.translator_engine.requests]
    assert limits == [3, 20, 9]


async def test_languages_by_any_of_their_codes(tokenizer: Tokenizer) -> None:
    tokens = Tokens(
        *(0, BOS, EOS, (), (EOS,), (BOS,), (EOS,)),
        targets={"zho_Hant": LanguageIds((BOS,), (), (EOS, BOS))},
    )
    languages: dict[str, Any] = {
        "source_languages": ("eng_Latn", "fra_Latn"),
        "target_languages": ("eng_Latn", "zho_Hans", "zho_Hant"),
    }
    async with made_world(tokenizer, tokens=tokens, **languages) as world:
        pair = {"source": "EN", "target": "zh-Hant"}
        answer = (await post(world, "/translate", q="a", **pair)).json()
        await post(world, "/score", q="a", translations="b", **pair)
        listed = (await world.client.get("/languages")).json()
        likeliest = await post(world, "/translate", q="a", source="en", target="zh")
        requests = world.translator_engine.requests

    assert answer == {"translatedText": "A"}
    assert likeliest.status_code == 200
    assert [request.prompt_ids for request in requests] == [(EOS, BOS), (EOS, BOS), ()]
    assert listed == [
        {"code": "eng_Latn", "name": "English", "targets": ["zho_Hans", "zho_Hant"]},
        {"code": "fra_Latn", "name": "French", "targets": ["eng_Latn", "zho_Hans", "zho_Hant"]},
    ]
