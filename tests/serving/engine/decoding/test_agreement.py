"""The engine against Hugging Face's `generate` over the torch module, on small random models.

All requests of a test share one running batch, and Hugging Face's run one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from export.bundling.writer import export_checkpoint
from models.decoding import BeamRules, beam_search
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams
from serving.requests.request import GenerationRequest
from tests.hugging_face import generate
from tests.reference_models import EOS_ID, ending_checkpoint, examples
from tests.serving.engine.decoding.hypotheses import Hypotheses, assert_alike, hypotheses_of
from tests.serving.engine.driving import run_all

FAMILIES = ["transformer", "bahdanau", "llama", "recurrent-lm"]
NEW_TOKENS = 12
HF_BEAM = {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6}
SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({}, {}),
    "beam": (HF_BEAM, {"beam": BeamParams(4, num_hypotheses=3, length_penalty=0.6)}),
}


@dataclass(frozen=True)
class Sides:
    """A model, as our engine has it and as Hugging Face drives it."""

    family: str
    module: nn.Module
    engine: Engine

    def theirs(self, case: "Case") -> Hypotheses:
        options = {"max_new_tokens": NEW_TOKENS, **case.options}
        hypotheses = generate(self.module, case.source, case.prompt, **options)
        return [(hypothesis.token_ids, hypothesis.score) for hypothesis in hypotheses]

    def ours(self, cases: Sequence["Case"]) -> list[Hypotheses]:
        stories = run_all(self.engine, (case.request(i) for i, case in enumerate(cases)))
        return [hypotheses_of(stories[str(i)]) for i in range(len(cases))]


@dataclass(frozen=True)
class Case:
    """One request and the options that ask `generate` for the same."""

    source: list[int] | None
    prompt: list[int]
    options: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)

    def request(self, number: int) -> GenerationRequest:
        source = None if self.source is None else (*self.source, EOS_ID)
        fields: dict[str, Any] = {"prompt_ids": tuple(self.prompt), "max_new_tokens": NEW_TOKENS}
        return GenerationRequest(str(number), source, **(fields | self.changes))


@pytest.fixture(params=FAMILIES, scope="module")
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder: Path = tmp_path_factory.mktemp("agreement")
    checkpoint = ending_checkpoint(request.param, folder / "checkpoint")
    export_checkpoint(checkpoint, folder / "bundle", Precision.FP32)
    engine = Engine(open_bundle(folder / "bundle"), EngineConfig(slots=40, threads=1))
    return Sides(request.param, load_module(checkpoint), engine)


def test_greedy_and_beams_of_all_widths_in_one_batch(sides: Sides) -> None:
    cases = [Case(*example) for example in examples(sides.family)]
    for (i, example), (j, beams), (k, penalty) in product(
        enumerate(examples(sides.family)), enumerate((2, 4, 8)), enumerate((0.0, 0.6, 2.0))
    ):  # each way with one example
        stop = (False, True, "never")[(i + j + k) % 3]
        names: dict[str, Any] = {
            "num_beams": beams,
            "length_penalty": penalty,
            "early_stopping": stop,
        }
        beam = BeamParams(num_hypotheses=beams, **names)
        cases.append(Case(*example, names | {"num_return_sequences": beams}, {"beam": beam}))
    for case, ours in zip(cases, sides.ours(cases), strict=True):
        assert_alike(ours, sides.theirs(case))


def test_patience(sides: Sides) -> None:
    """Hugging Face has none; against our own reference."""
    cases, rules = [], []
    for example, patience, stop in product(
        examples(sides.family), (0.5, 1.5, 2.0), (False, True, "never")
    ):
        names: dict[str, Any] = {"early_stopping": stop, "patience": patience}
        beam = BeamParams(4, num_hypotheses=2, **names)
        cases.append(Case(*example, changes={"beam": beam}))
        rules.append(BeamRules(4, NEW_TOKENS, **names))
    for case, rule, ours in zip(cases, rules, sides.ours(cases), strict=True):
        theirs = beam_search(sides.module, case.source, case.prompt, rule)[:2]
        assert_alike(ours, [(hypothesis.token_ids, hypothesis.score) for hypothesis in theirs])


@pytest.mark.parametrize("search", SEARCHES)
def test_forced_tokens_are_a_prompt_that_is_reported(search: str, sides: Sides) -> None:
    options, changes = SEARCHES[search]
    source, prompt = examples(sides.family)[0]
    forced = [30, 31, 32]
    case = Case(source, prompt, options, changes | {"forced_ids": tuple(forced)})
    theirs = sides.theirs(Case(source, prompt + forced, options))
    [ours] = sides.ours([case])
    assert_alike(ours, [(forced + ids, score) for ids, score in theirs])


@pytest.mark.parametrize("search", SEARCHES)
def test_more_stop_tokens(search: str, sides: Sides) -> None:
    """Which of them came is not reported: all count as </s> here."""
    options, changes = SEARCHES[search]
    for example in examples(sides.family):
        [plain] = sides.ours([Case(*example, options, changes)])
        stops = sorted({*longest(plain)[1::2], 60, 70} - {EOS_ID})
        generate_options = options | {"eos_token_id": [EOS_ID, *stops]}
        case = Case(*example, generate_options, changes | {"stop_token_ids": tuple(stops)})
        theirs = [
            ([*ids[:-1], EOS_ID if ids[-1] in stops else ids[-1]], score)
            for ids, score in sides.theirs(case)
        ]
        [ours] = sides.ours([case])
        assert_alike(ours, theirs)


Processed = dict[str, tuple[dict[str, Any], ProcessorParams]]


def processors_for(plain: list[int]) -> Processed:
    """Each processor alone and some together, aimed at a text that came without them: options of
    `generate` and ours.
    """
    words = [token_id for token_id in plain if token_id != EOS_ID]
    first, second, third = [*words, 50, 60, 70][:3]
    allowed = sorted({*plain, 50, 60, 70, 80, EOS_ID} - {first})
    bias = {"sequence_bias": [[[second], -4.0], [[99], 2.5]]}
    bad = {"bad_words_ids": [[first], [second, third]]}
    ours = ProcessorParams
    our_bias, our_bad = ((second, -4.0), (99, 2.5)), ((first,), (second, third))
    together: dict[str, Any] = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
    return {
        "penalty": ({"repetition_penalty": 1.7}, ours(repetition_penalty=1.7)),
        "reward": ({"repetition_penalty": 0.4}, ours(repetition_penalty=0.4)),
        "no unigram": ({"no_repeat_ngram_size": 1}, ours(no_repeat_ngram_size=1)),
        "no bigram": ({"no_repeat_ngram_size": 2}, ours(no_repeat_ngram_size=2)),
        "bad words": (bad, ours(bad_words=our_bad)),
        "suppressed": ({"suppress_tokens": [first, third]}, ours(bad_words=((first,), (third,)))),
        "bias": (bias, ours(logit_bias=our_bias)),
        "longer": ({"min_new_tokens": 9}, ours(min_tokens=9)),
        "allowed": (
            {"prefix_allowed_tokens_fn": lambda *_: allowed},
            ours(allowed_ids=tuple(allowed)),
        ),
        "together": (
            {**together, **bias, **bad, "min_new_tokens": 4},
            ours(**together, logit_bias=our_bias, bad_words=our_bad, min_tokens=4),
        ),
    }


@pytest.mark.parametrize("search", SEARCHES)
def test_each_processor(search: str, sides: Sides) -> None:
    options, changes = SEARCHES[search]
    names: list[str] = []
    cases: list[Case] = []
    plains: list[Hypotheses] = []
    for example in examples(sides.family):
        [plain] = sides.ours([Case(*example, options, changes)])
        for name, (hugging_face_options, processors) in processors_for(longest(plain)).items():
            names.append(name)
            cases.append(
                Case(*example, options | hugging_face_options, changes | {"processors": processors})
            )
            plains.append(plain)
    hypotheses = sides.ours(cases)
    for case, ours in zip(cases, hypotheses, strict=True):
        assert_alike(ours, sides.theirs(case))
    results = zip(names, plains, hypotheses, strict=True)
    changed = {name for name, plain, ours in results if ours != plain}
    assert changed == set(names), "a processor that changes nothing shows nothing"


def longest(hypotheses: Hypotheses) -> list[int]:
    return max((ids for ids, _ in hypotheses), key=len)
