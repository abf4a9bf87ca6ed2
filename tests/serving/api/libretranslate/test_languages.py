"""LibreTranslate: languages that are identified, pairs that two models have, and refusals."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import shouting_translator

EN, DE = "The dog runs in the garden.", "Der Hund läuft in den Garten."


@pytest.fixture
async def many(tokenizer: Tokenizer) -> AsyncIterator[World]:
    """German and Portuguese become English, English becomes French."""
    pairs = (("de", "en"), ("pt", "en"))
    others = [
        shouting_translator(
            tokenizer, f"{source}-{target}", source_languages=(source,), target_languages=(target,)
        )[0]
        for source, target in pairs
    ]
    async with made_world(tokenizer, others=others) as world:
        yield world


async def ask(world: World, **fields: Any) -> dict[str, Any]:
    response = await world.client.post("/translate", json=fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_source_is_identified(many: World) -> None:
    answer = await ask(many, q=DE, source="auto", target="en")

    assert answer["translatedText"] == DE.upper()
    assert answer["detectedLanguage"]["language"] == "de"
    assert 90 < answer["detectedLanguage"]["confidence"] <= 100
    assert "pivot" not in answer


async def test_each_text_of_a_list_has_its_own(many: World) -> None:
    texts = [EN, DE, "12", ""]

    answer = await ask(many, q=texts, source="auto", target="fr")

    assert answer["translatedText"] == [EN.upper(), DE.upper(), "12", ""]
    assert [item["language"] for item in answer["detectedLanguage"][:2]] == ["en", "de"]
    assert answer["pivot"][:2] == [None, "en"]
    assert [request.source_ids for request in many.translator_engine.requests]
    empty = await ask(many, q=[], source="auto", target="fr")
    assert empty == {"translatedText": [], "detectedLanguage": []}


async def test_only_what_can_be_brought_into_the_target_is_an_answer(many: World) -> None:
    by_target = await ask(many, q=EN, source="auto", target="en")
    by_model = await many.client.post(
        "/translate", json={"q": DE, "source": "auto", "target": "fr", "model": "shout"}
    )
    response = await many.client.post(
        "/translate", json={"q": "a", "source": "auto", "target": "x"}
    )

    assert (by_target["translatedText"], by_target["detectedLanguage"]["language"]) == (EN, "en")
    assert by_model.status_code == 400
    assert (
        "seems to be German, which no model here translates into French" in by_model.json()["error"]
    )
    assert (response.status_code, response.json()["error"][:7]) == (400, "target:")


async def test_two_models_are_named_by_the_language_between(many: World) -> None:
    answer = await ask(many, q="um", source="pt", target="fr")
    refused = await many.client.post(
        "/translate", json={"q": "um", "source": "pt", "target": "fr", "pivot": False}
    )
    scored = await many.client.post(
        "/translate", json={"q": "um", "source": "pt", "target": "fr", "return_scores": True}
    )

    assert answer == {"translatedText": "UM", "pivot": "en"}
    assert (refused.status_code, scored.status_code) == (400, 400)
    assert refused.json()["error"].startswith("target: not a target language for pt")
    assert scored.json()["error"].startswith("return_scores: needs one model")


async def test_a_form_may_say_all_of_it(many: World) -> None:
    fields = {"q": DE, "source": "auto", "target": "fr", "pivot": "true", "protect": "false"}

    by_form = await many.client.post("/translate", data=fields)
    by_query = await many.client.post("/translate", params=fields)

    assert by_form.json() == by_query.json()
    assert by_form.json()["pivot"] == "en"


@pytest.mark.parametrize("how", ["json", "data", "params"])
async def test_detect(many: World, how: str) -> None:
    asked: dict[str, Any] = {how: {"q": DE}}
    response = await many.client.post("/detect", **asked)

    [best, *_] = response.json()
    assert best["language"] == "de"
    assert 90 < best["confidence"] <= 100


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, "q: is required"),
        ({"q": 3}, 400, "q: input should be a valid string"),
        ({"q": ["a"]}, 400, "q: input should be a valid string"),
        ({"q": "a\0"}, 400, "q: must not contain NUL"),
        ({"q": "a", "source": "en"}, 400, "source: is not supported here"),
        ({"q": "a" * 1001}, 413, "q: must be at most 1000 characters"),
    ],
)
async def test_what_detect_refuses(
    many: World, fields: dict[str, Any], status: int, message: str
) -> None:
    response = await many.client.post("/detect", json=fields)

    assert response.status_code == status
    assert response.json()["error"].startswith(message)


async def test_languages_are_listed_with_all_that_they_become(many: World) -> None:
    response = await many.client.get("/languages")

    assert response.json() == [
        {"code": "de", "name": "German", "targets": ["en", "fr"]},
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "pt", "name": "Portuguese", "targets": ["en", "fr"]},
    ]


async def test_settings(many: World) -> None:
    settings = (await many.client.get("/frontend/settings")).json()

    assert settings["charLimit"] == 1000
    assert settings["keyRequired"] is False
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}


async def test_suggestions_are_refused(many: World) -> None:
    response = await many.client.post("/suggest", data={"q": "a", "s": "b"})

    assert response.status_code == 403
    assert response.json() == {"error": "suggestions are not kept on this server"}


async def test_html_and_protection_reach_the_job(world: World) -> None:
    plain = await ask(world, q="a <b>c</b>", source="en", target="fr", protect=False)
    html = await ask(world, q="<p>A dog.</p>", source="en", target="fr", format="html")

    assert plain == {"translatedText": "A <B>C</B>"}
    assert html == {"translatedText": "<p>A DOG.</p>"}
