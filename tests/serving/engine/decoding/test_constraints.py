"""Grammars in a running batch: what comes out is of the language, however its tokens are found."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer
from tests.serving.engine.driving import Story, run_all, run_alone
from tests.tiny import tiny_bundle

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, None]}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"sampling": SamplingParams(temperature=1.5, seed=3, top_p=0.95)},
    "beam": {"beam": BeamParams(4, num_hypotheses=2)},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundles")
    return open_bundle(tiny_bundle("llama", folder, Precision.FP32, context_length=128))


@pytest.fixture(scope="module")
def tokenizer(bundle: Bundle) -> Tokenizer:
    return Tokenizer(bundle.tokenizer_path)


@pytest.fixture(scope="module")
def grammars(bundle: Bundle, tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, bundle.manifest.tokens.stop)


def finished_event(story: Story) -> FinishedEvent:
    assert isinstance(story.final, FinishedEvent)
    return story.final


def test_every_search_keeps_to_its_grammar(
    bundle: Bundle, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    constraints = {
        "json": grammars.json_schema(SCHEMA),
        "regex": grammars.regex("[a-z]{3}-(é|日){2}"),
        "choice": grammars.choices(["red", "green", "greenish"]),
        "": None,
    }
    requests = [
        GenerationRequest(
            f"{kind} {name}", prompt_ids=(40, 50), max_new_tokens=100, constraint=grammar, **search
        )
        for kind, grammar in constraints.items()
        for name, search in SEARCHES.items()
    ]
    stories = run_all(Engine(bundle), requests)
    for name, story in stories.items():
        text = tokenizer.decode(story.token_ids)
        if name.startswith("json"):
            value = json.loads(text)
            assert set(value) == {"ok", "n"} and value["n"] in (1, 22, None)
        elif name.startswith("regex"):
            assert re.fullmatch("[a-z]{3}-(é|日){2}", text)
        elif name.startswith("choice"):
            assert text in ("red", "green", "greenish")
        if not name.startswith(" "):
            assert finished_event(story).reason is FinishReason.STOP
    for request in requests:
        assert run_alone(Engine(bundle), request).said == stories[request.request_id].said


def test_a_grammar_begins_after_the_forced_tokens(
    bundle: Bundle, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    forced = tuple(tokenizer.encode("Colour: "))
    constraint = grammars.choices(["red", "green"])
    stories = run_all(
        Engine(bundle),
        [
            GenerationRequest(
                name, prompt_ids=(40,), forced_ids=forced, constraint=constraint, **search
            )
            for name, search in SEARCHES.items()
        ],
    )
    for story in stories.values():
        assert tokenizer.decode(story.token_ids) in ("Colour: red", "Colour: green")


@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
def test_a_grammar_that_cannot_be_met_ends_with_its_own_reason(
    bundle: Bundle, tokenizer: Tokenizer, grammars: Grammars, search: dict[str, Any]
) -> None:
    (banned,) = tokenizer.encode("d")
    request = GenerationRequest(
        "r",
        prompt_ids=(40,),
        constraint=grammars.choices(["red"]),
        processors=ProcessorParams(bad_words=((banned,),)),
        **search,
    )
    story = run_alone(Engine(bundle), request)
    assert finished_event(story).reason is FinishReason.CONSTRAINT
