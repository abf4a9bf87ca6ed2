"""Defaults of a model: what a client says wins, and what makes no sense beside it stays away."""

from typing import Any

import pytest

from serving.pipelines.decoding import applicable_defaults, default_problems

SAMPLED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1}
SEARCHED = {"num_beams": 5, "length_penalty": 0.8, "early_stopping": True, "max_new_tokens": 200}


@pytest.mark.parametrize(
    ("generation", "options", "arguments", "applied"),
    [
        ({}, {}, {}, {}),
        (SAMPLED, {}, {}, SAMPLED),
        (SAMPLED, {"top_k": 0}, {}, {**SAMPLED, "top_k": None}),
        (SAMPLED, {"temperature": 0}, {}, {"repetition_penalty": 1.1}),
        (SAMPLED, {"temperature": 0.1}, {}, {**SAMPLED, "temperature": None}),
        (SAMPLED, {"num_beams": 4}, {"searches": True}, {"repetition_penalty": 1.1}),
        ({"top_k": 5}, {}, {"default_temperature": 1.0}, {"top_k": 5}),
        ({"top_k": 5}, {}, {"default_temperature": 0.0}, {}),
        (SEARCHED, {}, {}, {**SEARCHED, "max_new_tokens": None}),
        (SEARCHED, {"temperature": 0.5}, {}, {}),
        (SEARCHED, {"top_p": 0.5}, {"default_temperature": 1.0}, {}),
        (
            SEARCHED,
            {"num_beams": 2},
            {"searches": True},
            {"length_penalty": 0.8, "early_stopping": True},
        ),
        (SEARCHED, {"length_penalty": 1.0}, {}, {"num_beams": 5, "early_stopping": True}),
        (
            SEARCHED,
            {},
            {"searches": True, "min_beams": 8},
            {**SEARCHED, "num_beams": 8, "max_new_tokens": None},
        ),
        (SEARCHED, {}, {"min_beams": 17}, {}),
        ({"num_beams": 1, "length_penalty": 2.0}, {}, {}, {}),
        (
            {**SAMPLED, **SEARCHED},
            {},
            {},
            {**SEARCHED, "repetition_penalty": 1.1, "max_new_tokens": None},
        ),
        ({"min_tokens": 9}, {"max_tokens": 4}, {}, {"min_tokens": 4}),
        ({"min_tokens": 9, "max_new_tokens": 7}, {}, {}, {"min_tokens": 7}),
    ],
)
def test_what_applies(
    generation: dict[str, Any], options: dict[str, Any], arguments: dict[str, Any], applied: Any
) -> None:
    expected = {name: value for name, value in applied.items() if value is not None}

    assert applicable_defaults(generation, options, **arguments) == expected


def test_everything_wrong_is_told() -> None:
    generation = {
        "temperature": "hot",
        "top_k": -1,
        "num_beams": 99,
        "early_stopping": "perhaps",
        "no_repeat_ngram_size": 1.5,
        "max_new_tokens": 0,
        "max_length_factor": 0,
        "do_sample": True,
        "top_p": 0.9,
    }

    problems = list(default_problems(generation))

    assert [line.split(":")[0] for line in sorted(problems)] == [
        f"generation.{name}" for name in sorted(generation) if name != "top_p"
    ]
