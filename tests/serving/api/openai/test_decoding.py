"""Decoding over OpenAI's completions: each field acts or is refused, naming it and its value."""

import json
from typing import Any

import httpx
import pytest

from serving.errors import DeadlineExceeded
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishReason
from tests.serving.api.world import World

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def complete(world: World, **fields: Any) -> httpx.Response:
    body = {"model": "story", "prompt": "p", "max_tokens": 50, **fields}
    return await world.client.post("/v1/completions", json=body)


async def requested_decoding(world: World, **fields: Any) -> Any:
    """Record what reaches the engine."""
    response = await complete(world, **fields)
    assert response.status_code == 200, response.text
    [request] = world.generator_engine.requests
    return request


@pytest.mark.parametrize(
    ("field", "value", "name", "expected"),
    [
        ("logit_bias", {"17": 2, "5": -100}, "logit_bias", ((17, 2), (5, -100))),
        ("allowed_token_ids", [3, 4], "allowed_ids", (3, 4)),
    ],
)
async def test_processor_fields(
    world: World, field: str, value: Any, name: str, expected: Any
) -> None:
    request = await requested_decoding(world, **{field: value})

    assert getattr(request.processors, name) == expected


@pytest.mark.parametrize(
    ("field", "value", "name", "expected"),
    [
        ("ignore_eos", True, "ignore_eos", True),
        ("stop_token_ids", [5, 6], "stop_token_ids", (5, 6)),
        ("priority", -2, "priority", -2),
        ("timeout_seconds", 1.5, "timeout_seconds", 1.5),
        ("max_tokens", 7, "max_new_tokens", 7),
        ("logprobs", 3, "logprobs", 3),
        ("stream", True, "streams", True),
    ],
)
async def test_other_fields(world: World, field: str, value: Any, name: str, expected: Any) -> None:
    request = await requested_decoding(world, **{field: value})

    assert getattr(request, name) == expected


async def test_bad_words_are_banned_with_and_without_a_space(world: World) -> None:
    request = await requested_decoding(world, bad_words=["a"])

    assert [len(word) for word in request.processors.bad_words] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "beam"),
    [
        ({"use_beam_search": True}, BeamParams(4)),
        ({"use_beam_search": True, "n": 3}, BeamParams(3, 3)),
        ({"use_beam_search": True, "n": 2, "best_of": 5}, BeamParams(5, 2)),
        ({"num_beams": 6, "n": 2, "use_beam_search": True}, BeamParams(6, 2)),
        ({"num_beams": 1}, BeamParams(1)),
        ({"num_beams": 2, "temperature": 0, "top_p": 1}, BeamParams(2)),
        (
            {"num_beams": 2, "length_penalty": 0.5, "early_stopping": "never", "patience": 2.0},
            BeamParams(2, 1, 0.5, "never", 2.0),
        ),
        ({"num_beams": 2, "early_stopping": True}, BeamParams(2, early_stopping=True)),
    ],
)
async def test_beam_search(world: World, fields: dict[str, Any], beam: BeamParams) -> None:
    request = await requested_decoding(world, **fields)

    assert request.beam == beam
    assert request.sampling.temperature == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_are_hypotheses(world: World, stream: bool) -> None:
    response = await complete(world, num_beams=3, n=3, logprobs=0, stream=stream)

    texts, scores = ["", "", ""], {}
    if stream:
        lines = [line for line in response.text.split("\n\n") if line.startswith("data: {")]
        for line in lines:
            [choice] = json.loads(line.removeprefix("data: "))["choices"]
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                scores[choice["index"]] = choice["score"]
    else:
        choices = response.json()["choices"]
        texts = [choice["text"] for choice in choices]
        scores = {choice["index"]: choice["score"] for choice in choices}
    assert texts == [" once upon a time", " once upon a time!", " once upon a time!!"]
    assert scores == {0: -0.5, 1: -1.0, 2: -1.5}


async def test_what_is_no_hypothesis_has_no_score(world: World) -> None:
    sampled = await complete(world)
    cut = await complete(world, num_beams=2, stop=" upon")

    assert all("score" not in answer.json()["choices"][0] for answer in (sampled, cut))


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
            }
        },
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"guided_regex": "[a-z]+"},
        {"guided_choice": ["yes", "no"]},
        {"guided_grammar": 'start: "a"+'},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json_object": True}},
        {"structured_outputs": {"regex": "a|b"}},
        {"structured_outputs": {"choice": ["a"]}},
        {"structured_outputs": {"grammar": 'start: "a"'}},
    ],
    ids=str,
)
async def test_structured_output(world: World, fields: dict[str, Any]) -> None:
    assert (await requested_decoding(world, **fields)).constraint is not None


@pytest.mark.parametrize(
    "fields", [{"response_format": {"type": "text"}}, {"guided_json": None}, {}], ids=str
)
async def test_no_structure(world: World, fields: dict[str, Any]) -> None:
    assert (await requested_decoding(world, **fields)).constraint is None


async def test_scoring_a_prompt_as_lm_eval_does(world: World) -> None:
    response = await complete(world, prompt="ab", echo=True, logprobs=2, max_tokens=0)

    body = response.json()
    [choice] = body["choices"]
    assert choice["text"] == "ab"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["a", "b"]
    assert logprobs["token_logprobs"] == [-0.5, -0.5]
    assert logprobs["text_offset"] == [0, 1]
    assert logprobs["top_logprobs"][0] == {"a": -0.5, "b": -1.5}
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


async def test_an_end_token_counts_among_the_tokens(world: World) -> None:
    """Expect last but one the prompt's last token, whatever is generated after it."""
    world.generator_engine.script = lambda request: []

    response = await complete(world, prompt="ab", echo=True, logprobs=1, max_tokens=1)

    assert response.json()["choices"][0]["logprobs"]["tokens"] == ["a", "b", ""]


async def test_a_constraint_that_cannot_be_met_cuts_the_text(world: World) -> None:
    world.generator_engine.end = FinishReason.CONSTRAINT

    response = await complete(world, guided_regex="x")

    assert response.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_has_a_status_of_its_own(world: World, stream: bool) -> None:
    world.generator_engine.fails_after = 0
    world.generator_engine.failure = DeadlineExceeded(0.5)

    response = await complete(world, timeout_seconds=0.5, stream=stream)

    assert response.status_code == 504
    assert response.json()["error"]["message"].startswith("timeout_seconds: 0.5 s")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"no_repeat_ngram_size": 10**30}, "no_repeat_ngram_size", str(10**30)),
    ({"logit_bias": {"x": 1}}, "logit_bias", '"x"'),
    ({"logit_bias": {"-1": 1}}, "logit_bias", '"-1"'),
    ({"logit_bias": {"1": 101}}, "logit_bias", "101"),
    ({"logit_bias": [1]}, "logit_bias", "[1]"),
    ({"bad_words": [" "]}, "bad_words", '[" "]'),
    ({"bad_words": ["a"] * 129}, "bad_words", '"a"'),
    ({"bad_words": ["a" * 65]}, "bad_words", "["),
    ({"bad_words": ["\ud800"]}, "bad_words", "ud800"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "[]"),
    ({"allowed_token_ids": ["a"]}, "allowed_token_ids", '"a"'),
    ({"min_tokens": 51}, "min_tokens", "51"),
    ({"ignore_eos": 1}, "ignore_eos", "1"),
    ({"stop_token_ids": 5}, "stop_token_ids", "5"),
    ({"stop": "x" * 10_000}, "stop", "xxx"),
    ({"stop": ["a"] * 17}, "stop", '"a"'),
    ({"stop": ["a\0"]}, "stop", "a"),
    ({"n": 5, "num_beams": 4}, "n", "5"),
    ({"n": 3, "best_of": 2, "use_beam_search": True}, "n", "3"),
    ({"num_beams": 4, "best_of": 3}, "best_of", "3"),
    ({"num_beams": 4, "temperature": 0.5}, "temperature", "0.5"),
    ({"num_beams": 4, "top_p": 0.5}, "top_p", "0.5"),
    ({"num_beams": 4, "top_k": 3}, "top_k", "3"),
    ({"num_beams": 4, "coverage_penalty": 0.5}, "coverage_penalty", "0.5"),
    ({"length_penalty": 2}, "length_penalty", "2"),
    ({"early_stopping": True}, "early_stopping", "true"),
    ({"patience": 2}, "patience", "2"),
    ({"max_tokens": 0}, "max_tokens", "0"),
    ({"max_tokens": -1, "echo": True}, "max_tokens", "-1"),
    ({"prompt": []}, "prompt", "must not be empty"),
    ({"prompt": [[]]}, "prompt", "must not be empty"),
    ({"prompt": [[3], []]}, "prompt", "must not be empty"),
    ({"priority": 0.5}, "priority", "0.5"),
    ({"priority": 10**7}, "priority", str(10**7)),
    ({"timeout_seconds": 0}, "timeout_seconds", "0"),
    ({"timeout_seconds": 10**6}, "timeout_seconds", str(10**6)),
    ({"response_format": {"type": "xml"}}, "response_format", "xml"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
    ({"response_format": "json"}, "response_format", '"json"'),
    ({"structured_outputs": {"yaml": "a"}}, "structured_outputs", '"a"'),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", '"("'),
    ({"guided_json": "{"}, "guided_json", '"{"'),
    ({"guided_json": {"type": "nothing"}}, "guided_json", "nothing"),
    ({"guided_regex": "["}, "guided_regex", '"["'),
    ({"guided_regex": "a" * 70_000}, "guided_regex", "70000"),
    ({"guided_choice": []}, "guided_choice", "[]"),
    ({"guided_grammar": "start: x"}, "guided_grammar", "start: x"),
    ({"guided_json": {}, "guided_regex": "a"}, "guided_regex", '"a"'),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "true"),
]


@pytest.mark.parametrize(("fields", "param", "value"), REFUSED, ids=lambda part: str(part)[:40])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_refused(
    world: World, fields: dict[str, Any], param: str, value: str, stream: bool
) -> None:
    body = {"model": "story", "prompt": "p", "max_tokens": 50, "stream": stream, **fields}

    response = await world.client.post("/v1/completions", content=json.dumps(body).encode())

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert value in error["message"]
    assert world.generator_engine.requests == []
