"""Decoding over `/translate`: alternatives and our own fields, and what is refused of them."""

import json
from math import exp
from typing import Any

import httpx
import pytest

from serving.errors import DeadlineExceeded
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishReason
from tests.serving.api.world import World


async def translate(world: World, **fields: Any) -> httpx.Response:
    body = {"q": "a dog", "source": "en", "target": "fr", **fields}
    return await world.client.post("/translate", content=json.dumps(body).encode())


async def requested_decoding(world: World, **fields: Any) -> Any:
    """Record what reaches the engine."""
    response = await translate(world, **fields)
    assert response.status_code == 200, response.text
    return world.translator_engine.requests[-1]


async def test_without_any_fields_decoding_is_greedy(world: World) -> None:
    request = await requested_decoding(world)

    assert request.beam is None
    assert request.sampling.is_greedy
    assert request.alignment_heads is None


@pytest.mark.parametrize(
    ("fields", "beam"),
    [
        ({"num_beams": 5}, BeamParams(5)),
        ({"num_beams": "5"}, BeamParams(5)),
        (
            {
                "num_beams": 5,
                "length_penalty": 0.6,
                "early_stopping": "never",
                "patience": 2,
                "coverage_penalty": 0.2,
            },
            BeamParams(5, 1, 0.6, "never", 2.0, 0.2),
        ),
        ({"alternatives": 1}, BeamParams(4, 4)),
        ({"alternatives": "3"}, BeamParams(8, 8)),
        ({"alternatives": 15}, BeamParams(16, 16)),
        ({"alternatives": 2, "num_beams": 3}, BeamParams(3, 3)),
    ],
)
async def test_beam_search(world: World, fields: dict[str, Any], beam: BeamParams) -> None:
    assert (await requested_decoding(world, **fields)).beam == beam


async def test_other_fields(world: World) -> None:
    request = await requested_decoding(
        world,
        bad_words='["a"]',
        max_new_tokens=9,
        priority=-2,
        timeout_seconds=1.5,
        replace_unknown=True,
        api_key="k",
    )

    assert [len(word) for word in request.processors.bad_words] == [1, 2]
    assert (request.max_new_tokens, request.priority, request.timeout_seconds) == (9, -2, 1.5)
    assert request.alignment_heads is not None


async def test_alternatives(world: World) -> None:
    one = (await translate(world, q="a dog.", alternatives=2)).json()
    many = (await translate(world, q=["a.", ""], alternatives=1, return_scores=True)).json()

    assert one == {"translatedText": "A DOG.", "alternatives": ["A DOG.!", "A DOG.!!"]}
    assert many == {
        "translatedText": ["A.", ""],
        "alternatives": [["A.!"], []],
        "scores": [[-0.5, -1.0], [0.0]],
        "finish_reasons": ["stop", "stop"],
    }


async def test_an_end_by_length_is_told_without_asking(world: World) -> None:
    assert "finish_reasons" not in (await translate(world)).json()
    world.translator_engine.end = FinishReason.LENGTH

    one = (await translate(world)).json()
    many = (await translate(world, q=["a", ""])).json()

    assert one == {"translatedText": "A DOG", "finish_reasons": "length"}
    assert many["finish_reasons"] == ["length", "stop"]


async def test_alternatives_at_a_prefix(world: World) -> None:
    fields = {"target_prefix": "x", "alternatives": 1, "alternatives_at_prefix": True}

    answer = (await translate(world, q="b", **fields)).json()

    assert answer == {"translatedText": "xBB", "alternatives": ["xCB"]}


async def test_a_prefix(world: World) -> None:
    assert (await translate(world, target_prefix="So ")).json() == {"translatedText": "SoA DOG"}


@pytest.mark.parametrize("glossary", [{"dog": ["chien"]}, '{"dog": "chien"}'])
async def test_a_glossary(world: World, glossary: Any) -> None:
    answer = (await translate(world, glossary=glossary)).json()

    assert answer == {"translatedText": "A chien", "finish_reasons": "stop"}
    assert world.translator_engine.requests[0].beam is None


@pytest.mark.parametrize("placeholders", [True, "true", ["{n}"], '["{n}"]'])
async def test_placeholders(world: World, placeholders: Any) -> None:
    answer = (await translate(world, q="a {n} dog", placeholders=placeholders)).json()

    assert answer == {"translatedText": "A {n} DOG"}


async def test_alignments(world: World) -> None:
    one = (await translate(world, alignments=True)).json()
    many = (await translate(world, q=["", "a"], alignments=True)).json()

    aligned = {"source": ["a", "dog"], "target": ["A", "DOG"], "pharaoh": "0-0 1-1"}
    assert one["alignments"] == aligned
    nothing = {"source": [], "target": [], "pharaoh": ""}
    assert many["alignments"] == [nothing, {"source": ["a"], "target": ["A"], "pharaoh": "0-0"}]


async def test_attention(world: World) -> None:
    """The last of the source's tokens ends it; each token here attends to the one of its number."""
    one = (await translate(world, q="ab\nc", return_attention=True, attention_heads="[3]")).json()

    first, second = one["attention"]
    assert first["source_words"] == ["ab", ""]
    assert (first["target_words"], first["word_weights"]) == (["AB"], [[1.0, 0.0]])
    assert first["source_tokens"] == ["a", "b", ""]
    assert first["target_tokens"] == ["A", "B"]
    assert first["weights"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert second["target_tokens"] == ["C"]
    for request in world.translator_engine.requests:
        assert request.alignment_heads == (3,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alignments", True),
        ("return_attention", True),
        ("placeholders", True),
        ("placeholders", ["{n}"]),
        ("replace_unknown", True),
    ],
)
async def test_a_model_without_attention_says_so(
    world_without_attention: World, field: str, value: Any
) -> None:
    plain = await translate(world_without_attention, glossary={"dog": "chien"})
    refused = await translate(world_without_attention, **{field: value})

    assert plain.status_code == 200
    assert refused.status_code == 400
    why = "model shout has no attention over its source: its architecture, fake, has none"
    error = {"error": f"{field}: {why} (got true)", "field": field, "reason": why}
    assert refused.json() == error


async def test_a_form_may_ask_for_all_of_it(world: World) -> None:
    form = {
        "q": "a dog",
        "source": "en",
        "target": "fr",
        "num_beams": "4",
        "alignments": "true",
        "glossary": '{"dog": ["chien"]}',
    }

    response = await world.client.post("/translate", data=form)

    assert response.status_code == 200
    assert response.json()["alignments"]["pharaoh"] == "0-0 1-1"


async def test_a_deadline_has_a_status_of_its_own(world: World) -> None:
    world.translator_engine.fails_after = 0
    world.translator_engine.failure = DeadlineExceeded(0.5)

    response = await translate(world, timeout_seconds=0.5)

    assert response.status_code == 504
    assert response.json()["error"].startswith("timeout_seconds: 0.5 s")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"num_beam": 4}, "num_beam", "4"),
    ({"num_beams": 2.5}, "num_beams", "2.5"),
    ({"num_beams": True}, "num_beams", "true"),
    ({"num_beams": "many"}, "num_beams", '"many"'),
    ({"length_penalty": 2}, "length_penalty", "2"),
    ({"num_beams": 4, "length_penalty": "nan"}, "length_penalty", "NaN"),
    ({"coverage_penalty": 0.2}, "coverage_penalty", "0.2"),
    ({"early_stopping": True}, "early_stopping", "true"),
    ({"num_beams": 4, "temperature": 1}, "temperature", "1"),
    ({"num_beams": 4, "top_p": 0.5}, "top_p", "0.5"),
    ({"temperature": 1, "alternatives": 2}, "temperature", "1"),
    ({"top_k": 5}, "top_k", "5"),
    ({"min_p": 0.1}, "min_p", "0.1"),
    ({"bad_words": [" "]}, "bad_words", '[" "]'),
    ({"bad_words": "word"}, "bad_words", '"word"'),
    ({"max_new_tokens": 0}, "max_new_tokens", "0"),
    ({"alternatives": -1}, "alternatives", "-1"),
    ({"alternatives": 16}, "alternatives", "16"),
    ({"alternatives": True}, "alternatives", "true"),
    ({"alternatives": 4, "num_beams": 4}, "alternatives", "4"),
    ({"alternatives_at_prefix": True}, "alternatives_at_prefix", "true"),
    ({"target_prefix": 3}, "target_prefix", "3"),
    ({"target_prefix": "\ud800"}, "target_prefix", "ud800"),
    ({"glossary": ["dog"]}, "glossary", '["dog"]'),
    ({"glossary": "dog"}, "glossary", '"dog"'),
    ({"glossary": {"dog": []}}, "glossary", "dog"),
    ({"glossary": {"dog": [3]}}, "glossary", "3"),
    ({"glossary": {"": "x"}}, "glossary", '""'),
    ({"glossary": {"dog": "x" * 257}}, "glossary", "xxx"),
    ({"glossary": {"dog": "x" * 64}}, "glossary", "at most 64 tokens"),
    ({"glossary": {str(n): "x" for n in range(257)}}, "glossary", "257"),
    ({"placeholders": []}, "placeholders", "0"),
    ({"placeholders": [""]}, "placeholders", '""'),
    ({"placeholders": 3}, "placeholders", "3"),
    ({"alignments": "perhaps"}, "alignments", '"perhaps"'),
    ({"return_attention": 2}, "return_attention", "2"),
    ({"attention_heads": [1]}, "attention_heads", "[1]"),
    ({"alignments": True, "attention_heads": [True]}, "attention_heads", "true"),
    ({"alignments": True, "attention_heads": "1"}, "attention_heads", "1"),
    ({"priority": 10**7}, "priority", str(10**7)),
    ({"timeout_seconds": 0}, "timeout_seconds", "0"),
]


@pytest.mark.parametrize(("fields", "field", "value"), REFUSED, ids=lambda part: str(part)[:40])
async def test_what_is_refused(
    world: World, fields: dict[str, Any], field: str, value: str
) -> None:
    response = await translate(world, **fields)

    assert response.status_code == 400, response.text
    assert response.json()["error"].startswith(f"{field}: ")
    assert value in response.json()["error"]
    assert world.translator_engine.requests == []


async def test_quality(world: World) -> None:
    one = (await translate(world, q="a b", quality=True)).json()["quality"]
    many = (await translate(world, q=["One. Two", ""], quality="true", alternatives=1)).json()

    score, p = round(0.04 + 0.79 * exp(-0.5), 4), round(exp(-0.5), 4)
    sentence = {"score": score, "words": ["A", "B"], "word_probabilities": [p, p]}
    assert one == {"score": score, "sentences": [sentence]}
    assert [item["words"] for item in many["quality"][0]["sentences"]] == [["ONE."], ["TWO"]]
    assert many["quality"][1] == {"score": None, "sentences": []}
    refused = await translate(world, quality=2)
    assert refused.status_code == 400 and refused.json()["error"].startswith("quality: ")
