"""`/score`: pairs in every form, tokens with their log-probabilities, errors."""

from typing import Any

import httpx
import pytest

from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}


async def score(world: World, **fields: Any) -> httpx.Response:
    return await world.client.post("/score", json={**EN_FR, **fields})


async def test_a_pair(world: World) -> None:
    response = await score(world, q="a", translations="bc", model="shout")

    assert response.json() == {
        "scores": [
            {
                "logprob": -1.5,
                "mean_logprob": -0.5,
                "num_tokens": 3,
                "tokens": [
                    {"text": "b", "logprob": -0.5},
                    {"text": "c", "logprob": -0.5},
                    {"text": "", "logprob": -0.5},
                ],
            }
        ]
    }


async def test_attention_of_a_pair(world: World) -> None:
    fields = {"return_attention": True, "attention_heads": [2]}

    [result] = (await score(world, q="a b", translations="cd", **fields)).json()["scores"]

    assert result["attention"] == {
        "source_tokens": ["a", " ", "b", ""],
        "target_tokens": ["c", "d"],
        "weights": [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]],
        "source_words": ["a", "b", ""],
        "target_words": ["cd"],
        "word_weights": [[0.5, 0.0, 0.5]],
    }
    assert world.translator_engine.requests[0].alignment_heads == (2,)


async def test_a_model_without_attention_has_none_to_tell(world_without_attention: World) -> None:
    response = await score(world_without_attention, q="a", translations="b", return_attention=True)

    assert response.status_code == 400
    assert response.json()["error"].startswith("return_attention: model shout has no attention")


@pytest.mark.parametrize(
    ("q", "translations", "num_pairs"),
    [(["a", "b"], ["x", "yz"], 2), ("a", ["x", "yz", ""], 3), ([], [], 0)],
)
async def test_many_pairs_are_one_batch(
    world: World, q: Any, translations: Any, num_pairs: int
) -> None:
    scores = (await score(world, q=q, translations=translations)).json()["scores"]

    assert [item["num_tokens"] for item in scores] == [len(text) + 1 for text in translations]
    assert len(world.translator_engine.requests) == num_pairs
    assert world.translator_engine.num_runs <= 1


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"q": "a"}, 400, "translations: is required"),
        ({"q": "a", "translations": 3}, 400, "translations: input"),
        ({"q": "a", "translations": "b", "attention_heads": [1]}, 400, "attention_heads: needs"),
        ({"q": ["a", "b"], "translations": ["x"]}, 400, "translations: must be as many"),
        ({"q": ["a", "b"], "translations": "x"}, 400, "translations: must be as many"),
        ({"q": "a", "translations": "x\0"}, 400, "translations: must not contain NUL"),
        ({"q": "a" * 1001, "translations": "x"}, 413, "q: must be at most"),
        ({"q": "a", "translations": ["x"] * 21}, 413, "q: at most 20 pairs"),
        ({"q": "a", "translations": "x", "source": "xx"}, 400, "source: no such"),
        (
            {"q": "a", "translations": "x", "model": "story"},
            400,
            "model: completes prompts; it does not",
        ),
        ({"q": "a", "translations": "x", "made_up": 1}, 400, "made_up: is not supported"),
        ({"q": "a", "translations": "x", "priority": 0.5}, 400, "priority: "),
        ({"q": "a", "translations": "x", "timeout_seconds": -1}, 400, "timeout_seconds: "),
    ],
)
async def test_what_is_refused(
    world: World, fields: dict[str, Any], status: int, message: str
) -> None:
    response = await score(world, **fields)

    assert response.status_code == status
    assert [*response.json()] == ["error", "field", "reason"]
    assert response.json()["error"].startswith(message)
    assert world.translator_engine.requests == []
