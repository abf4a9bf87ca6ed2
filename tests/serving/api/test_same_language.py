"""Texts that are in the target language already come back as they are, in every protocol."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest
from fastapi import FastAPI
from libretranslatepy import LibreTranslateAPI

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import shouting_translator

EN, FR, DE = (
    "The dog runs in the garden.\n",
    " Le chien court dans le jardin ;\n\n<b>il</b> est &agrave; moi {0}.",
    "Ich habe einen Hund und eine Katze.",
)


@pytest.fixture
async def desk(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[World]:
    """A server with a model from English to French alone, that works on documents."""
    write_keys(
        tmp_path / "keys.json",
        (KeyEntry(name="ann", sha256=hash_key("secret"), characters_per_month=1_000),),
    )
    access = {"state": open_state(tmp_path), "keys": KeyRing(tmp_path / "keys.json", {})}
    async with (
        made_world(tokenizer, access=access) as world,
        world.app.router.lifespan_context(world.app),
    ):
        world.client.headers["Authorization"] = "Bearer secret"
        yield world


def model(tokenizer: Tokenizer, pair: str) -> Any:
    source, target = pair.split(">")
    options: dict[str, Any] = {"source_languages": (source,), "target_languages": (target,)}
    return shouting_translator(tokenizer, pair, **options)[0]


async def ask(world: World, **fields: Any) -> httpx.Response:
    return await world.client.post("/translate", json=fields)


async def used_characters(world: World) -> int:
    count: int = (await world.client.get("/usage")).json()["character_count"]
    return count


# source, target, of a server that reads en and writes fr
SAME = """
en en
en en-GB
EN en_US
en-US en-GB
eng EN
eng_Latn en
en_XX en-us
fr fr
FR fra
fr-CA fr-FR
fra_Latn fr
"""


@pytest.mark.parametrize("pair", SAME.strip().splitlines())
async def test_what_is_said_to_be_in_the_target_language_comes_back(
    world: World, pair: str
) -> None:
    source, target = pair.split()
    texts = ["\tThe  dog\r\nruns ", EN, FR, DE, "", " ", "12", "😀", "<p>&amp;&nbsp;</p>"]

    alone = await ask(world, q=FR, source=source, target=target)
    together = await ask(world, q=texts, source=source, target=target)
    html = await ask(world, q=texts, source=source, target=target, format="html")
    deepls = {"source_lang": source, "target_lang": target, "tag_handling": "xml"}
    deepl_text = await world.client.post("/v2/translate", json={"text": texts, **deepls})

    assert alone.json() == {"translatedText": FR}
    assert together.json() == html.json() == {"translatedText": texts}
    assert deepl_text.status_code == 200, deepl_text.text
    translations = deepl_text.json()["translations"]
    assert [item["text"] for item in translations] == texts
    assert {item["billed_characters"] for item in translations} == {0}
    assert {item["detected_source_language"] for item in translations} == {source[:2].upper()}
    assert world.translator_engine.requests == []


REFUSED = """
xx xx
auto auto
English English
de de
en-Latn en-Cyrl
und und
fr en
"""


@pytest.mark.parametrize("pair", REFUSED.strip().splitlines())
async def test_what_no_model_here_reads_or_writes_stays_refused(world: World, pair: str) -> None:
    source, target = pair.split()

    response = await ask(world, q="A dog runs.", source=source, target=target)

    assert response.status_code == 400


@pytest.mark.parametrize("source", ["auto", "AUTO", "Auto"])
async def test_each_text_of_an_array_is_detected(world: World, source: str) -> None:
    texts = [FR, EN, "OK", "", FR, EN]

    answer = (await ask(world, q=texts, source=source, target="fr")).json()
    alone = (await ask(world, q=FR, source=source, target="fr")).json()

    assert answer["translatedText"] == [FR, EN.upper(), "OK", "", FR, EN.upper()]
    languages = [item["language"] for item in answer["detectedLanguage"]]
    assert [languages[number] for number in (0, 1, 4, 5)] == ["fr", "en", "fr", "en"]
    assert alone["translatedText"] == FR
    assert alone["detectedLanguage"]["language"] == "fr"
    assert alone["detectedLanguage"]["confidence"] > 90


@pytest.mark.parametrize("target", ["en", "EN-GB"])
async def test_without_any_model_into_the_target(world: World, target: str) -> None:
    unchanged = await ask(world, q=[EN, "OK", "12"], source="auto", target=target)
    refused = await ask(world, q=FR, source="auto", target=target)

    assert unchanged.json()["translatedText"] == [EN, "OK", "12"]
    assert {item["language"] for item in unchanged.json()["detectedLanguage"]} == {"en"}
    message = "source: the text seems to be French, which no model here translates into English"
    assert refused.status_code == 400
    assert refused.json()["error"] == f'{message} (got "auto")'
    assert world.translator_engine.requests == []


@pytest.mark.parametrize("before", [[], [EN], [FR, EN], ["12", ""]])
async def test_a_third_language_is_refused_alone_and_in_arrays(
    world: World, before: list[str]
) -> None:
    texts = [*before, DE]

    response = await ask(world, q=texts if before else DE, source="auto", target="fr")
    deepls = await world.client.post("/v2/translate", json={"text": texts, "target_lang": "FR"})

    place = f"the text at index {len(before)}" if before else "the text"
    assert response.status_code == 400
    assert f"{place} seems to be German, which no model here" in response.json()["error"]
    assert deepls.status_code == 400
    assert deepls.json()["message"] == "Value for 'source_lang' not supported."
    assert f"{place} seems to be German" in deepls.json()["detail"]
    assert world.translator_engine.requests == []


async def test_each_language_has_its_model_and_pivots_are_for_others(tokenizer: Tokenizer) -> None:
    others = [model(tokenizer, "de>en"), model(tokenizer, "fr>en")]
    async with made_world(tokenizer, others=others) as world:
        to_french = (await ask(world, q=[DE, FR, EN], source="auto", target="fr")).json()
        to_english = (await ask(world, q=[DE, FR, EN], source="auto", target="en")).json()
        said = (await ask(world, q=EN, source="en", target="en")).json()

    assert to_french["translatedText"] == [DE.upper(), FR, EN.upper()]
    assert to_french["pivot"] == ["en", None, None]
    assert to_english["translatedText"][0] == DE.upper()
    assert to_english["translatedText"][2] == EN
    assert said == {"translatedText": EN}


async def test_a_model_that_rewrites_a_language_is_asked(tokenizer: Tokenizer) -> None:
    async with made_world(tokenizer, others=[model(tokenizer, "en>en")]) as world:
        said = (await ask(world, q="a dog", source="en", target="en")).json()
        detected = (await ask(world, q=EN, source="auto", target="en")).json()
        other = (await ask(world, q=EN, source="en", target="en", model="shout")).json()

    assert said == {"translatedText": "A DOG"}
    assert detected["translatedText"] == EN.upper()
    assert other == {"translatedText": EN}


async def test_scripts_are_not_the_same(tokenizer: Tokenizer) -> None:
    simplified, traditional = "今天天气很好，我们去学校。", "今天天氣很好，我們去學校。"
    others = [model(tokenizer, "zh-Hans>en"), model(tokenizer, "sr-Cyrl>en")]
    async with made_world(tokenizer, others=others) as world:
        for source, target in (("zh-CN", "zh"), ("zh", "zh-Hans"), ("sr", "sr-Cyrl")):
            answer = await ask(world, q=simplified, source=source, target=target)
            assert answer.json() == {"translatedText": simplified}
        for source, target in (("zh", "zh-Hant"), ("zh-CN", "zh-TW"), ("sr-Latn", "sr")):
            refused = await ask(world, q=simplified, source=source, target=target)
            assert refused.status_code == 400
        unchanged = await ask(world, q=simplified, source="auto", target="zh-Hans")
        refused = await ask(world, q=traditional, source="auto", target="zh-Hans")

    assert unchanged.json()["translatedText"] == simplified
    assert (refused.status_code, "seems to be Chinese" in refused.text) == (400, True)


async def test_all_that_can_be_asked_for(world: World) -> None:
    request = {
        "alternatives": 2,
        "alignments": True,
        "return_scores": True,
        "return_attention": True,
        "quality": True,
        "target_prefix": "Le",
        "glossary": {"chien": "dog"},
        "placeholders": True,
        "num_beams": 4,
    }
    answer = (await ask(world, q="Le chien court ici.", source="fr", target="fr", **request)).json()

    assert answer == {
        "translatedText": "Le chien court ici.",
        "alternatives": [],
        "scores": [0.0],
        "finish_reasons": "stop",
        "quality": {"score": None, "sentences": []},
        "alignments": {
            "source": ["Le", "chien", "court", "ici."],
            "target": ["Le", "chien", "court", "ici."],
            "pharaoh": "0-0 1-1 2-2 3-3",
        },
        "attention": [],
    }


async def test_a_stream(world: World) -> None:
    body = {"q": [FR, EN, ""], "source": "auto", "target": "fr", "stream": True}
    response = await world.client.post("/translate", json=body)

    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    *deltas, whole = (json.loads(line) for line in lines if line != "[DONE]")
    pieces = ["".join(d["delta"] for d in deltas if d["index"] == n) for n in range(3)]
    assert whole["translatedText"] == pieces == [FR, EN.upper(), ""]
    assert [d for d in deltas if d["index"] == 0] == [
        {"index": 0, "sentence": 0, "delta": FR, "finish_reason": "stop"}
    ]


async def test_nothing_is_billed_and_no_model_is_counted(desk: World) -> None:
    deepl_key = {"Authorization": "DeepL-Auth-Key secret"}
    await ask(desk, q=FR, source="auto", target="fr")
    await ask(desk, q=[FR, EN], source="fr", target="fr")
    said = {"text": [FR], "source_lang": "FR", "target_lang": "FR"}
    await desk.client.post("/v2/translate", json=said, headers=deepl_key)
    chat = {"model": "shout", "target_language": "en", "messages": [{"role": "user"}]}
    chat["messages"][0]["content"] = EN  # type: ignore[index]
    answer = await desk.client.post("/v1/chat/completions", json=chat)
    assert answer.json()["choices"][0]["message"]["content"] == EN
    assert answer.json()["usage"]["total_tokens"] == 0
    assert await used_characters(desk) == 0

    mixed = {"text": [FR, EN], "target_lang": "FR"}
    result = (await desk.client.post("/v2/translate", json=mixed, headers=deepl_key)).json()

    assert [translation["billed_characters"] for translation in result["translations"]] == [
        0,
        len(EN),
    ]
    assert await used_characters(desk) == len(EN)
    samples = desk.metrics.exposition().decode().splitlines()
    counted = [line for line in samples if line.startswith("attendant_requests_total")]
    assert [line for line in counted if 'model="same-language"' in line and "2.0" in line]


@pytest.mark.parametrize(
    ("source", "languages"),
    [
        ("fr", {}),
        ("FR", {"target_language": "fr"}),
        ("fr-CA", {"target_language": "fra"}),
        ("en", {"target_language": "en"}),
        ("en-US", {"target_language": "en-GB"}),
    ],
)
async def test_prompts_whose_source_language_is_the_target(
    world: World, source: str, languages: dict[str, str]
) -> None:
    body = {"model": "shout", "prompt": [FR, EN], "source_language": source, **languages}

    answer = await world.client.post("/v1/completions", json=body)
    other = await world.client.post("/v1/completions", json={**body, "source_language": "de"})

    assert [choice["text"] for choice in answer.json()["choices"]] == [FR, EN]
    error = other.json()["error"]
    assert (other.status_code, error["param"]) == (400, "source_language")


@pytest.mark.parametrize(
    ("text", "source", "expected", "billed"),
    [
        ("Le chien court dans le jardin.\nIl est à moi.\n", "auto", None, 0),
        ("Le chien court dans le jardin.\nIl est à moi.\n", "fr", None, 0),
        ("The dog runs in the garden.\nIt is mine.\n", "en", "upper", 38),
        ("The dog runs.\nLe chien court dans le jardin.\nIt is my own.", "auto", "mixed", 26),
        (f"{EN * 3}{DE}\nIt is mine.", "auto", "foreign", 92),
    ],
)
async def test_documents(
    desk: World, text: str, source: str, expected: str | None, billed: int
) -> None:
    data = {"source": source, "target": "fr"}
    sent = await desk.client.post(
        "/translate_file", data=data, files={"file": ("a.txt", text.encode())}
    )
    assert sent.status_code == 200, sent.text
    fetched = (await desk.client.get(sent.json()["translatedFileUrl"])).text

    if expected is None:
        assert fetched == text
    elif expected == "upper":
        assert fetched == text.upper()
    else:
        *before, unchanged, last = text.split("\n")
        assert fetched == "\n".join([*map(str.upper, before), unchanged, last.upper()])
    assert await used_characters(desk) == billed


async def test_a_document_that_no_model_reads_is_refused(desk: World) -> None:
    data = {"source": "auto", "target": "fr"}
    files = {"file": ("a.txt", f"{DE}\n{DE}".encode())}

    refused = await desk.client.post("/translate_file", data=data, files=files)

    assert refused.status_code == 400
    assert "seems to be German" in refused.json()["error"]


async def test_what_is_written_here_is_detected_too(world: World) -> None:
    [best, *_] = (await world.client.post("/detect", json={"q": FR})).json()

    assert best["language"] == "fr" and best["confidence"] > 90


def test_the_official_clients(tokenizer: Tokenizer, tmp_path: Path) -> None:
    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with (
            made_world(tokenizer, access={"state": open_state(tmp_path)}) as world,
            world.app.router.lifespan_context(world.app),
        ):
            yield world.app

    with listening(app) as url:
        client = deepl.DeepLClient("key", server_url=url)
        mixed = client.translate_text([FR, EN], target_lang="FR")
        assert isinstance(mixed, list)
        assert [item.text for item in mixed] == [FR, EN.upper()]
        assert [item.detected_source_lang for item in mixed] == ["FR", "EN"]
        assert [item.billed_characters for item in mixed] == [0, len(EN)]
        british = client.translate_text(EN, source_lang="EN", target_lang="EN-GB")
        assert isinstance(british, deepl.TextResult) and british.text == EN
        (tmp_path / "a.txt").write_bytes(b"Le chien court dans le jardin.")
        paths = tmp_path / "a.txt", tmp_path / "b.txt"
        status = client.translate_document_from_filepath(*paths, target_lang="FR")
        assert paths[1].read_bytes() == paths[0].read_bytes()
        assert status.done and status.billed_characters == 0

        libre = LibreTranslateAPI(f"{url}/")
        assert libre.translate("Le chien court.", "auto", "fr") == "Le chien court."
        assert libre.translate("Le chien court.", "fr", "fr") == "Le chien court."
        assert libre.translate("A dog runs.", "en", "en") == "A dog runs."
        assert libre.detect("Le chien court dans le jardin.")[0]["language"] == "fr"
