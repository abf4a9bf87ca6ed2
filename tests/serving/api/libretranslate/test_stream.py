"""LibreTranslate with `stream`: events, of which the last is what is answered without."""

import asyncio
import json
from typing import Any

from serving.errors import EngineStopped
from serving.requests.request import GenerationRequest
from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr", "protect": False}


async def events(world: World, **fields: Any) -> list[str]:
    response = await world.client.post("/translate", json={**EN_FR, **fields, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *found, end = response.text.split("\n\n")
    assert end == ""
    assert all(event.startswith("data: ") for event in found)
    return [event.removeprefix("data: ") for event in found]


async def test_the_last_event_is_the_whole_answer_to_the_byte(world: World) -> None:
    fields = {
        "q": ["Un é. Two!", "", "  Three "],
        "alternatives": 1,
        "return_scores": True,
        "quality": True,
    }

    *pieces, last = await events(world, **fields)

    whole = await world.client.post("/translate", json={**EN_FR, **fields})
    assert last.encode() == whole.content
    texts = ["", "", ""]
    for piece in map(json.loads, pieces):
        texts[piece["index"]] += piece["delta"]
    assert texts == whole.json()["translatedText"]


async def test_tokens_come_as_they_are_made(world: World) -> None:
    *pieces, last = await events(world, q="Ab", protect=False)

    assert list(map(json.loads, pieces)) == [
        {"index": 0, "sentence": 0, "delta": "A"},
        {"index": 0, "sentence": 0, "delta": "B"},
        {"index": 0, "sentence": 0, "delta": "", "finish_reason": "stop"},
    ]
    assert json.loads(last) == {"translatedText": "AB"}


async def test_what_is_refused_has_its_own_status(world: World) -> None:
    world.translator_engine.max_waiting = 0
    request = {"q": "a", **EN_FR, "stream": True}

    full = await world.client.post("/translate", json=request)
    wrong = await world.client.post("/translate", json=request | {"target": "de"})

    assert (full.status_code, wrong.status_code) == (429, 400)
    assert full.headers["content-type"] == "application/json"


async def test_a_late_failure_is_the_last_event(world: World) -> None:
    world.translator_engine.fails_after = 1
    world.translator_engine.failure = EngineStopped("the engine has stopped")

    first, last = await events(world, q="Ab", protect=False)

    assert json.loads(first)["delta"] == "A"
    assert json.loads(last) == {"error": "the engine has stopped"}
    assert outcomes(world, "overloaded") == 1


async def test_who_goes_away_cancels(world: World) -> None:
    began = asyncio.Event()
    script = world.translator_engine.script

    def begin(request: GenerationRequest) -> Any:
        began.set()
        return script(request)

    world.translator_engine.script = begin
    body = json.dumps({"q": "One. Two.", **EN_FR, "stream": True}).encode()
    request_body = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if request_body:
            return request_body.pop()
        while not any(message.get("body") for message in sent):
            await asyncio.sleep(0)
        world.translator_engine.gate = asyncio.Event()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(0)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers}
    await world.app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)

    assert began.is_set()
    assert len(world.translator_engine.cancelled) == 2
    assert outcomes(world, "cancelled") == 1


def outcomes(world: World, outcome: str) -> float | None:
    labels = {"model": "shout", "protocol": "libretranslate", "outcome": outcome, "replica": "r1"}
    return world.metrics.registry.get_sample_value("attendant_requests_total", labels)
