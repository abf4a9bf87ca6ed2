"""Each declared option of decoding in each protocol that has it: it reaches the engine, and values
out of range are refused by its name.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from serving.requests.parameters import OPTIONS, Choices, Integers, Numbers, Option
from tests.serving.api.world import World


@dataclass(frozen=True)
class Endpoint:
    path: str
    body: dict[str, Any]

    async def ask(self, world: World, **fields: Any) -> httpx.Response:
        content = json.dumps({**self.body, **fields}).encode()  # NaN too
        return await world.client.post(self.path, content=content)


WELL = [{"role": "user", "content": "Well?"}]
TRANSLATE = Endpoint("/translate", {"q": "a dog", "source": "en", "target": "fr"})
ENDPOINTS = [
    TRANSLATE,
    Endpoint("/v1/completions", {"model": "story", "prompt": "p", "max_tokens": 50}),
    Endpoint("/v1/chat/completions", {"model": "story", "messages": WELL, "max_tokens": 50}),
]
CASES = [
    pytest.param(endpoint, option, id=f"{endpoint.path}-{option.name}")
    for endpoint in ENDPOINTS
    for option in OPTIONS.values()
    if endpoint is TRANSLATE or not option.needs_source
]
NEEDED: dict[str | None, dict[str, Any]] = {
    None: {},
    "a temperature above 0": {"temperature": 0.5},
    "num_beams": {"num_beams": 2},
}


def accepted_value(option: Option) -> Any:
    """Return a value other than the default."""
    values = option.values
    if isinstance(values, Choices):
        return [*values.by_word.values()][-1]
    if isinstance(values, Integers):
        return max(values.low, 0) + 2
    return values.low + 0.75 * (values.high - values.low)


def refused_values(option: Option) -> list[Any]:
    values = option.values
    if isinstance(values, Choices):
        return ["perhaps"]
    if isinstance(values, Integers):  # top_k may be -1
        return [values.low - 2, values.high + 1, values.low + 0.5]
    assert isinstance(values, Numbers)
    end = [values.low] * values.is_low_open
    return [values.low - 0.1, *end, values.high + 0.1, math.nan, math.inf]


@pytest.mark.parametrize(("endpoint", "option"), CASES)
async def test_it_reaches_the_engine(chat_world: World, endpoint: Endpoint, option: Option) -> None:
    value = accepted_value(option)
    assert value != option.default

    response = await endpoint.ask(chat_world, **NEEDED[option.needs] | {option.name: value})

    assert response.status_code == 200, response.text
    requests = chat_world.translator_engine.requests + chat_world.generator_engine.requests
    [request] = requests
    parts = (request.sampling, request.beam, request.processors)
    assert [getattr(part, option.name) for part in parts if hasattr(part, option.name)] == [value]


@pytest.mark.parametrize(("endpoint", "option"), CASES)
async def test_a_value_out_of_range_is_refused_by_its_name(
    chat_world: World, endpoint: Endpoint, option: Option
) -> None:
    for value in refused_values(option):
        response = await endpoint.ask(chat_world, **NEEDED[option.needs] | {option.name: value})

        assert response.status_code == 400, (value, response.text)
        error = response.json()["error"]
        message = error if endpoint is TRANSLATE else error["message"]
        assert message.startswith(f"{option.name}: "), message
    assert chat_world.translator_engine.requests == chat_world.generator_engine.requests == []
