"""Other people's software: its requests, as its sources make them, and what it reads of answers."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from serving.access.key_ring import KEY_VARIABLE, KeyRing
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

KEY = "secret"
DEEPL = {"Authorization": f"DeepL-Auth-Key {KEY}"}
BEARER = {"Authorization": f"Bearer {KEY}"}
Ask = Callable[..., Any]


@pytest.fixture
async def ask(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[Ask]:
    """Ask a server that wants a key; returns the JSON of an answer of the expected status."""
    access = {"keys": KeyRing(None, {KEY_VARIABLE: KEY}), "state": open_state(tmp_path)}
    async with made_world(tokenizer, access=access) as world:

        async def ask(method: str, path: str, status: int = 200, **sent: Any) -> Any:
            response = await world.client.request(method, path, **sent)
            assert response.status_code == status, response.text
            return response.json() if response.content else None

        yield ask


async def test_weblate_asks_as_of_deepl(ask: Ask) -> None:
    """weblate/machinery/deepl.py of WeblateOrg/weblate, commit 01c5add9."""
    for kind, language in (("source", "EN"), ("target", "FR")):
        params = {"enable_beta_languages": "1", "type": kind}
        listed = await ask("GET", "/v2/languages", headers=DEEPL, params=params)
        assert language in {item["language"] for item in listed}
    pairs = await ask("GET", "/v2/glossary-language-pairs", headers=DEEPL)
    assert {"source_lang": "en", "target_lang": "fr"} in pairs["supported_languages"]
    body = {"name": "weblate:1", "source_lang": "EN", "target_lang": "FR"}
    body |= {"entries": "dog\thound", "entries_format": "tsv"}
    await ask("POST", "/v2/glossaries", 201, headers=DEEPL, json=body)
    [glossary] = (await ask("GET", "/v2/glossaries", headers=DEEPL))["glossaries"]
    assert glossary["name"] == "weblate:1" and glossary["creation_time"]

    request = {
        "text": ['The dog &amp; <x id="16"></x>', "Fine"],
        "source_lang": "EN",
        "target_lang": "FR",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
        "context": "A page.",
        "glossary_id": glossary["glossary_id"],
        "model_type": "prefer_quality_optimized",
    }
    result = await ask("POST", "/v2/translate", headers=DEEPL, json=request)
    texts = [item["text"] for item in result["translations"]]
    assert texts == ['THE hound &amp; <x id="16"></x>', "FINE"]
    gone = f"/v2/glossaries/{glossary['glossary_id']}"
    await ask("DELETE", gone, 204, headers=DEEPL)
    await ask("DELETE", gone, 404, headers=DEEPL)  # it looks for 400 or 404


async def test_old_clients_of_deepl_ask_by_post(ask: Ask) -> None:
    """As weblate/machinery/deepl.py did, commit 5c1dbeb8."""
    assert (await ask("POST", "/v2/languages", headers=DEEPL))[0]["language"] == "EN"
    assert (await ask("POST", "/v2/usage", headers=DEEPL))["character_count"] == 0


async def test_deepl_for_python_sends_a_form_by_get(ask: Ask) -> None:
    """deepl/translator.py of deepl-python 1.32.0."""
    listed = await ask("GET", "/v2/languages", headers=DEEPL, data={"type": "target"})
    assert listed[0]["language"] == "FR"


async def test_weblate_asks_as_of_libretranslate(ask: Ask) -> None:
    """weblate/machinery/libretranslate.py, commit 19117864, and LTEngine's single texts."""
    [language] = await ask("GET", "/languages")
    body = {"api_key": KEY, "source": language["code"], "target": "fr"}
    for text, translation in (("A dog.", "A DOG."), (["A dog.", "B."], ["A DOG.", "B."])):
        result = await ask("POST", "/translate", json=body | {"q": text})
        assert result["translatedText"] == translation


async def test_weblate_asks_as_of_openai(ask: Ask) -> None:
    """weblate/machinery/openai.py: penalties as in commit db58819b, an example as in newer ones."""
    model = (await ask("GET", "/v1/models", headers=BEARER))["data"][0]["id"]
    said = [("system", "Translate."), ("user", "[]"), ("assistant", "[]"), ("user", "Go.")]
    messages = [{"role": role, "content": content} for role, content in said]
    body = {"model": model, "messages": messages, "temperature": 0}
    body |= {"frequency_penalty": 0, "presence_penalty": 0}
    [choice] = (await ask("POST", "/v1/chat/completions", headers=BEARER, json=body))["choices"]

    assert (choice["message"]["content"], choice["finish_reason"]) == ("GO.", "stop")


async def test_omegat_asks_as_of_deepl(ask: Ask) -> None:
    """DeepLTranslate.java of omegat-org/omegat, commit 3b6da766: version 1, by GET, with the key in
    the query.
    """
    request = {"auth_key": KEY, "text": "a <g1>dog</g1> runs. It's small.", "tag_handling": "xml"}
    request |= {"source_lang": "EN", "target_lang": "FR", "split_sentences": "0"}
    request["preserve_formatting"] = "1"
    result = await ask("GET", "/v1/translate", params=request)
    wrong = await ask("GET", "/v1/translate", 400, params=request | {"target_lang": "XX"})

    assert result["translations"][0]["text"] == "a <g1>DOG</g1> RUNS. IT'S SMALL."
    assert wrong["message"] == "Value for 'target_lang' not supported."
    await ask("GET", "/v1/translate", 403, params=request | {"auth_key": "none"})


async def test_omegat_asks_as_of_libretranslate(world: World) -> None:
    """LibreTranslate.java of omegat-org/omegat-libre-translate, commit 12bd2afb: by GET."""
    params = {"q": "A dog.", "source": "en", "target": "fr"}
    result = await world.client.get("/translate", params=params)

    assert result.json()["translatedText"] == "A DOG."


MENTION = (
    '<span class="h-card" translate="no">'
    '<a href="https://a.example/@b" class="u-url mention">@<span>b</span></a></span>'
)
POSTS = (f"<p>{MENTION} A dog.</p>", "The small dog runs over the street.")
TRANSLATED = [POSTS[0].replace("A dog", "A DOG"), POSTS[1].upper()]


@pytest.mark.parametrize("source", ["en", "auto"])
async def test_mastodon_asks_as_of_libretranslate(ask: Ask, source: str) -> None:
    """app/lib/translation_service/libre_translate.rb of mastodon/mastodon, commit bcba029a."""
    sent = {"q": POSTS, "source": source, "target": "fr", "format": "html", "api_key": KEY}
    result = await ask("POST", "/translate", json=sent)
    [listed] = await ask("GET", "/languages", headers={"Content-Type": "application/json"})

    assert (result["translatedText"], listed["targets"]) == (TRANSLATED, ["fr"])
    assert source == "en" or result["detectedLanguage"][1]["language"] == "en"
    await ask("POST", "/translate", 403, json=sent | {"api_key": None})


async def test_mastodon_asks_as_of_deepl(ask: Ask) -> None:
    """app/lib/translation_service/deepl.rb, commit 03e681d2: a form as Ruby writes it, in which a
    field that is nil has no value.
    """
    form = "&".join(f"text={quote_plus(text)}" for text in POSTS)
    form += "&source_lang&target_lang=fr&tag_handling=html"
    headers = DEEPL | {"Content-Type": "application/x-www-form-urlencoded"}
    translations = (await ask("POST", "/v2/translate", headers=headers, content=form))[
        "translations"
    ]

    assert [item["text"] for item in translations] == TRANSLATED
    assert translations[1]["detected_source_language"] == "EN"


def dictionary(number: int, entries: str, kind: str = "tsv") -> dict[str, str]:
    fields = {"source_lang": "en", "target_lang": "fr", "entries": entries, "entries_format": kind}
    return {f"dictionaries[{number}].{name}": value for name, value in fields.items()}


async def test_deepl_for_node_sends_dictionaries_in_forms(ask: Ask) -> None:
    """dist/utils.js of deepl-node 1.28.0, whose calls have all been tried with that package."""
    form = {"name": "m", **dictionary(0, "cat\tpuss")}
    created = await ask("POST", "/v3/glossaries", 201, headers=DEEPL, data=form)
    path = f"/v3/glossaries/{created['glossary_id']}"
    csv = dictionary(0, 'bird,oiseau\n"a, b",c', "csv")
    changed = await ask("PATCH", path, headers=DEEPL, data=csv)

    assert created["dictionaries"][0]["entry_count"] == 1
    assert changed["dictionaries"][0]["entry_count"] == 3
    twice = form | dictionary(1, "a\tb")
    assert (
        "once" in (await ask("POST", "/v3/glossaries", 400, headers=DEEPL, data=twice))["message"]
    )
