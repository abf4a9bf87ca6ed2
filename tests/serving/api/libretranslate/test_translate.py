"""LibreTranslate: bodies in every form, lists, languages, errors in its shape."""

from typing import Any

import pytest

from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}


async def test_json_form_and_query_are_the_same(world: World) -> None:
    fields = {"q": "A dog.", **EN_FR}

    by_json = await world.client.post("/translate", json=fields)
    by_form = await world.client.post("/translate", data=fields)
    by_multipart = await world.client.post(
        "/translate", files={k: (None, v) for k, v in fields.items()}
    )
    by_query = await world.client.post("/translate", params=fields)

    for response in (by_json, by_form, by_multipart, by_query):
        assert response.status_code == 200
        assert response.json() == {"translatedText": "A DOG."}


async def test_a_form_may_hold_its_utf_8_as_it_is(world: World) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = "q=Café+%C3%A9&source=en&target=fr"

    response = await world.client.post("/translate", content=body.encode(), headers=headers)
    raise_error = await world.client.post("/translate", content=b"q=%FF", headers=headers)

    assert response.json() == {"translatedText": "CAFÉ É"}
    assert raise_error.status_code == 400
    crowded = await world.client.post("/translate", content=b"a&" * 10_001, headers=headers)
    assert crowded.status_code == 400
    assert raise_error.json()["error"].startswith("body: is not a form in UTF-8")


async def test_a_list_gives_a_list(world: World) -> None:
    as_json = await world.client.post("/translate", json={"q": ["a b.", "", "c"], **EN_FR})
    as_form = await world.client.post("/translate", data={"q": ["a", "b"], **EN_FR})

    assert as_json.json() == {"translatedText": ["A B.", "", "C"]}
    assert as_form.json() == {"translatedText": ["A", "B"]}


async def test_a_model_can_be_named(world: World) -> None:
    response = await world.client.post("/translate", json={"q": "a", "model": "shout", **EN_FR})

    assert response.json() == {"translatedText": "A"}


@pytest.mark.parametrize("text", ["", " \n"])
async def test_empty_text_has_an_empty_translation(world: World, text: str) -> None:
    response = await world.client.post("/translate", json={"q": text, **EN_FR})

    assert (response.status_code, response.json()) == (200, {"translatedText": text})


async def test_languages(world: World) -> None:
    response = await world.client.get("/languages")

    assert response.json() == [{"code": "en", "name": "English", "targets": ["fr"]}]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "body: is not valid JSON"),
        (b"\xff", 400, "body: is not valid JSON"),
        (b"[" * 70_000, 400, "body: "),
        (b"[1]", 400, "body: must be a JSON object"),
        (b"{}", 400, "q: is required"),
        (b'{"q": 3, "source": "en", "target": "fr"}', 400, "q: input should be a valid string"),
        (b'{"q": "a", "source": "en"}', 400, "target: is required"),
        (b'{"q": "a", "source": "xx", "target": "fr"}', 400, "source: no such source language"),
        (b'{"q": "a", "source": "en", "target": "\\ud800"}', 400, "target: "),
        (b'{"q": "a", "source": "en", "target": "de"}', 400, "target: not a target language"),
        (b'{"q": "\\ud800", "source": "en", "target": "fr"}', 400, "q: "),
        (b'{"q": "a\\u0000", "source": "en", "target": "fr"}', 400, "q: must not contain NUL"),
        (b'{"q": "a", "source": "en", "target": "fr", "format": "xml"}', 400, "format: "),
        (b'{"q": "a", "source": "en", "target": "fr", "alternatives": 2.5}', 400, "alternatives: "),
        (b'{"q": "a", "source": "en", "target": "fr", "model": "x"}', 404, "model: no such model"),
        (
            b'{"q": "a", "source": "en", "target": "fr", "model": "story"}',
            400,
            "model: completes prompts; it does not",
        ),
        (b'{"q": "%s", "source": "en", "target": "fr"}' % (b"a" * 1001), 413, "q: must be at most"),
        (b'{"q": ["%s", "%s"]}' % (b"a" * 50_000, b"a" * 50_000), 413, "body: is too large"),
    ],
)
async def test_what_is_refused(world: World, body: bytes, status: int, message: str) -> None:
    headers = {"content-type": "application/json"}

    response = await world.client.post("/translate", content=body, headers=headers)

    assert response.status_code == status
    assert [*response.json()] == ["error", "field", "reason"]
    assert response.json()["error"].startswith(message)
    after = await world.client.post("/translate", json={"q": "a", **EN_FR})
    assert after.json() == {"translatedText": "A"}


async def test_too_many_sentences(world: World) -> None:
    response = await world.client.post("/translate", json={"q": "a.\n" * 21, **EN_FR})

    assert response.status_code == 413
    assert "at most 20 sentences" in response.json()["error"]


async def test_overload_asks_to_come_back(world: World) -> None:
    world.translator_engine.max_waiting = 0

    response = await world.client.post("/translate", json={"q": "a", **EN_FR})

    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert "waiting" in response.json()["error"]


async def test_a_fault_of_ours_is_not_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def raise_error(request: Any) -> list[int]:
        raise ZeroDivisionError("secret")

    world.translator_engine.script = raise_error

    response = await world.client.post("/translate", json={"q": "a", **EN_FR})

    assert (response.status_code, response.json()) == (500, {"error": "internal error"})
    assert "secret" in caplog.text


async def test_any_page_may_ask(world: World) -> None:
    response = await world.client.get("/languages", headers={"origin": "http://elsewhere"})

    assert response.headers["access-control-allow-origin"] == "*"


async def test_a_body_that_is_cut_short_is_no_fault_of_ours(world: World) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/translate", "headers": []}
    await world.app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)

    labels = {"model": "", "protocol": "libretranslate", "outcome": "refused", "replica": "r1"}
    assert world.metrics.registry.get_sample_value("attendant_requests_total", labels) == 1


async def test_an_unknown_path(world: World) -> None:
    response = await world.client.get("/nowhere")

    assert (response.status_code, response.json()) == (404, {"error": "Not Found"})
