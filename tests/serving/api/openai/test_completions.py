"""OpenAI's completions: whole and streamed, every form of prompt, errors in its shape."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from serving.errors import OutOfMemory, Overloaded
from tests.serving.api.world import World

TEXT = " once upon a time"


async def complete(world: World, **fields: Any) -> httpx.Response:
    body = {"model": "story", "prompt": "p", "max_tokens": 50, **fields}
    return await world.client.post("/v1/completions", json=body)


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    *lines, end = [line for line in response.text.split("\n\n") if line]
    assert end == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_a_whole_completion(world: World) -> None:
    body = (await complete(world)).json()

    assert (body["object"], body["model"]) == ("text_completion", "story")
    assert body["choices"] == [
        {"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}
    ]
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 17, "total_tokens": 19}


async def test_streamed_is_whole(world: World) -> None:
    response = await complete(world, stream=True, stream_options={"include_usage": True})

    assert response.headers["content-type"].startswith("text/event-stream")
    *pieces, usage = chunks(response)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == TEXT
    assert [piece["choices"][0]["finish_reason"] for piece in pieces][-2:] == [None, "stop"]
    assert len({(piece["id"], piece["created"]) for piece in [*pieces, usage]}) == 1
    assert all(piece["usage"] is None for piece in pieces)
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 17)


@pytest.mark.parametrize(
    ("prompt", "num_choices"),
    [("p", 2), (["p", "q"], 4), ([100, 101], 2), ([[100], [101, 102], [103]], 6), ("", 2)],
)
async def test_every_form_of_prompt(world: World, prompt: Any, num_choices: int) -> None:
    body = (await complete(world, prompt=prompt, n=2)).json()

    assert [choice["index"] for choice in body["choices"]] == list(range(num_choices))
    assert {choice["text"] for choice in body["choices"]} == {TEXT}


async def test_echo_stop_and_length(world: World) -> None:
    echoed = (await complete(world, prompt="Listen:", echo=True, stop=" a ")).json()
    cut = (await complete(world, max_tokens=5)).json()

    assert echoed["choices"][0]["text"] == "Listen: once upon"
    assert (cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]) == (" once", "length")


async def test_logprobs(world: World) -> None:
    body = (await complete(world, logprobs=1, max_tokens=3)).json()

    assert body["choices"][0]["logprobs"] == {
        "tokens": [" ", "o", "n"],
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{" ": -0.5}, {"o": -0.5}, {"n": -0.5}],
        "text_offset": [0, 1, 2],
    }


async def test_the_chosen_token_is_among_the_top_ones(world: World) -> None:
    body = (await complete(world, logprobs=0, max_tokens=1)).json()

    assert body["choices"][0]["logprobs"]["top_logprobs"] == [{" ": -0.5}]


async def test_sampling_reaches_the_engine(world: World) -> None:
    await complete(world, temperature=0.5, top_p=0.9, top_k=-1, seed=7)

    [request] = world.generator_engine.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 0, 7)


async def test_no_op_fields_are_accepted(world: World) -> None:
    response = await complete(
        world, repetition_penalty=1.0, presence_penalty=0, ignore_eos=False, made_up=None, best_of=1
    )

    assert response.status_code == 200


@pytest.mark.parametrize(
    ("fields", "param", "status"),
    [
        ({"model": None}, "model", 400),
        ({"model": "x"}, "model", 404),
        ({"model": "\ud800"}, "model", 404),
        ({"prompt": None}, "prompt", 400),
        ({"prompt": 3}, "prompt", 400),
        ({"prompt": []}, "prompt", 400),
        ({"prompt": ["a", 3]}, "prompt", 400),
        ({"prompt": [1.5]}, "prompt", 400),
        ({"prompt": [259]}, "prompt", 400),
        ({"prompt": [-1]}, "prompt", 400),
        ({"prompt": "\ud800"}, "prompt", 400),
        ({"prompt": "a\0"}, "prompt", 400),
        ({"prompt": "a" * 1001}, "prompt", 413),
        ({"prompt": ["a" * 100] * 11}, "prompt", 413),
        ({"prompt": "a" * 200}, "prompt", 400),
        ({"max_tokens": 1.5}, "max_tokens", 400),
        ({"max_tokens": "3"}, "max_tokens", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"max_tokens": True}, "max_tokens", 400),
        ({"max_tokens": 127}, "max_tokens", 400),
        ({"max_tokens": 10**30}, "max_tokens", 400),
        ({"n": 0}, "n", 400),
        ({"n": 129}, "n", 400),
        ({"temperature": -1}, "temperature", 400),
        ({"temperature": "hot"}, "temperature", 400),
        ({"top_p": -0.1}, "top_p", 400),
        ({"stream": False, "stream_options": {"include_usage": True}}, "stream_options", 400),
        ({"top_k": -2}, "top_k", 400),
        ({"logprobs": 21}, "logprobs", 400),
        ({"best_of": 3}, "best_of", 400),
        ({"suffix": "the end"}, "suffix", 400),
        ({"stop": ""}, "stop", 400),
        ({"made_up": 1}, "made_up", 400),
        ({"\ud800": 1}, "body", 400),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options", 400),
        ({"stream": "yes"}, "stream", 400),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_refused(
    world: World, fields: dict[str, Any], param: str, status: int, stream: bool
) -> None:
    body = {"model": "story", "prompt": "p", "stream": stream, **fields}
    content = json.dumps(body).encode()

    response = await world.client.post("/v1/completions", content=content)

    assert response.status_code == status
    error = response.json()["error"]
    assert {*error} == {"message", "type", "param", "code", "reason"}
    assert error["param"] == param
    is_too_long = fields in ({"prompt": "a" * 200}, {"max_tokens": 127}, {"max_tokens": 10**30})
    code = "context_length_exceeded" if is_too_long else None
    assert error["code"] == ("model_not_found" if status == 404 else code)
    assert world.generator_engine.requests == []
    assert (await complete(world)).status_code == 200


async def test_a_body_that_is_no_json(world: World) -> None:
    response = await world.client.post("/v1/completions", content=b'{"model": NaN')

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_failure_within_a_stream_is_told_in_it(world: World) -> None:
    world.generator_engine.fails_after = 1

    response = await complete(world, stream=True)

    *_, last = [line for line in response.text.split("\n\n") if line]
    assert response.status_code == 200
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"


async def test_a_refusal_has_its_own_status_with_echo_too(world: World) -> None:
    def refusing(request: Any) -> list[int]:
        raise Overloaded(1)

    world.generator_engine.script = refusing

    response = await complete(world, stream=True, echo=True)

    assert response.status_code == 429


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_device_is_told_to_come_again(world: World, stream: bool) -> None:
    def refusing(request: Any) -> list[int]:
        raise OutOfMemory("the GPU's memory is full")

    world.generator_engine.script = refusing

    response = await complete(world, stream=stream)

    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert "memory is full" in response.json()["error"]["message"]


async def test_a_stream_that_nobody_reads_to_its_end_was_cancelled(world: World) -> None:
    world.generator_engine.gate = asyncio.Event()
    world.generator_engine.gate.set()
    body = json.dumps({"model": "story", "prompt": "p", "stream": True}).encode()
    came = [{"type": "http.request", "body": body, "more_body": False}]
    is_read = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if came:
            return came.pop()
        await is_read.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            world.generator_engine.gate.clear()  # type: ignore[union-attr]
            is_read.set()

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    await world.app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)

    assert len(world.generator_engine.cancelled) == 1
    labels = {"model": "story", "protocol": "openai", "outcome": "cancelled", "replica": "r1"}
    registry = world.metrics.registry
    assert registry.get_sample_value("attendant_requests_total", labels) == 1


async def test_models(world: World) -> None:
    listed = (await world.client.get("/v1/models")).json()
    one = (await world.client.get("/v1/models/story")).json()
    none = await world.client.get("/v1/models/none")

    assert [model["id"] for model in listed["data"]] == ["shout", "story"]
    assert one == {**listed["data"][1], "card": ""}
    assert (none.status_code, none.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("method", ["get", "put"])
async def test_errors_of_routing_have_the_shape_too(world: World, method: str) -> None:
    response = await world.client.request(method, "/v1/completions")

    assert response.status_code == 405
    assert response.json()["error"]["message"] == "Method Not Allowed"


async def test_a_top_p_of_nothing_means_the_likeliest_token(world: World) -> None:
    await complete(world, temperature=1, top_p=0)

    [request] = world.generator_engine.requests
    assert request.sampling.is_greedy


@pytest.mark.parametrize(
    "options",
    [
        {"include_usage": None, "include_obfuscation": None},
        {"include_obfuscation": True},
        {"continuous_usage_stats": None},
    ],
)
async def test_options_of_streams_may_be_null_or_of_no_effect(
    world: World, options: dict[str, Any]
) -> None:
    response = await complete(world, stream=True, stream_options=options)

    assert response.status_code == 200
    assert "usage" not in response.text and "obfuscation" not in response.text
