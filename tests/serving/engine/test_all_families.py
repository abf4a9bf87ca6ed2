"""Every architecture that can be exported, through the engine: bits do not depend on company, and
searches find what the torch module's own find.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from export.bundling.writer import export_checkpoint
from models.decoding import BeamRules, beam_search
from models.loading import load_module
from serving.bundle.manifest import Precision, Task
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.grid import full
from tests.reference_models import ending_checkpoint, examples
from tests.serving.engine.decoding.hypotheses import assert_alike as assert_found_alike
from tests.serving.engine.decoding.hypotheses import hypotheses_of
from tests.serving.engine.devices import PRECISIONS, assert_alike, config_of, cpu_only
from tests.serving.engine.driving import run_all, run_alone, run_as_they_come
from tests.serving.engine.test_company import DRAWN, EDITS
from tests.tiny import DECODERS, tiny_bundle

NEW_TOKENS = 10
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("convs2s", {"decoder_kernel_size": 1, "encoder_kernel_size": 1}),
    ("key-value-lm", {"window": 1, "parts": "attention"}),
    ("lstmn", {"fusion": "shallow", "max_target_tokens": 23}),
    (
        "luong",
        {"attention": {"kind": "local-m", "window": 1}, "score": "dot", "input_feeding": False},
    ),
    ("ngram-lm", {"order": 2, "cell": "lstm", "num_layers": 2}),
]
CASES = [*((name, {}) for name in DECODERS), *VARIANTS]
ASKS: dict[str, dict[str, Any]] = {
    "greedy": {"logprobs": 3},
    "drawn": {"sampling": replace(DRAWN, top_p=0.9)},
    "beam": {"beam": BeamParams(4, num_hypotheses=4)},
    "forced": {"forced_ids": (30, 31, 32)},
    "forced beam": {"forced_ids": (30, 31, 32), "beam": BeamParams(2)},
    "edited": {"processors": EDITS, "sampling": DRAWN},
    "edited beam": {"processors": EDITS, "beam": BeamParams(4, length_penalty=0.0)},
    "greedy again": {},
}
OF_ATTENTION: dict[str, dict[str, Any]] = {
    "attention": {"alignment_heads": ()},
    "attention of beams": {"alignment_heads": (), "beam": BeamParams(3, num_hypotheses=3)},
    "coverage": {"beam": BeamParams(4, coverage_penalty=0.3)},
}


def requests_for(bundle: Bundle) -> list[GenerationRequest]:
    """Make requests of all lengths, that of one token and those around a span among them."""
    has_attention = bundle.manifest.num_attention_heads > 0
    ids_field = "source_ids" if bundle.manifest.task is Task.TRANSLATE else "prompt_ids"
    asks = ASKS | OF_ATTENTION if has_attention else ASKS
    return [
        GenerationRequest(name, max_new_tokens=NEW_TOKENS, **{ids_field: ids_of(i)} | ask)
        for i, (name, ask) in enumerate(asks.items())
    ]


def ids_of(number: int) -> tuple[int, ...]:
    length = (17, 5, 1, 16, 2, 30, 9)[number % 7]
    return tuple(3 + (7 * number + j * j) % 250 for j in range(length))


@pytest.mark.parametrize("precision", [PRECISIONS[-1], *full(PRECISIONS[:-1])])
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_a_request_says_the_same_alone_and_as_others_come_and_go(
    family: str, changes: dict[str, Any], precision: Precision, tmp_path: Path
) -> None:
    bundle = open_bundle(tiny_bundle(family, tmp_path, precision, **changes))
    requests = requests_for(bundle)
    config = config_of(slots=13)
    engine, fresh = Engine(bundle, config), Engine(bundle, config)
    arrivals = [0, 0, 1, 2, 2, 3, 5, 8, 9, 11, 11][: len(requests)]
    together = run_as_they_come(engine, requests, arrivals, cancels={7: 12})
    other_requests = requests[:7] + requests[8:]
    alone = {request.request_id: run_alone(fresh, request) for request in other_requests}
    assert_alike(other_requests, together, alone)
    again = {request.request_id: run_alone(engine, request) for request in other_requests}
    assert_alike(other_requests, again, alone)


@cpu_only
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_searches_find_what_those_over_the_torch_module_find(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = ending_checkpoint(family, tmp_path / "checkpoint", **changes)
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32)
    engine = Engine(open_bundle(tmp_path / "bundle"), EngineConfig(slots=16, threads=1))
    module = load_module(checkpoint)
    requests, rules = {}, BeamRules(4, NEW_TOKENS, length_penalty=0.6)
    beam = BeamParams(4, num_hypotheses=4, length_penalty=0.6)
    for i, (source, prompt) in enumerate(examples(family)):
        ids = None if source is None else (*source, module.config.eos_id)
        greedy = GenerationRequest(f"{i}", ids, tuple(prompt), max_new_tokens=NEW_TOKENS)
        requests[greedy] = beam_search(module, source, prompt, BeamRules(1, NEW_TOKENS))
        searched = replace(greedy, request_id=f"{i} by beams", beam=beam)
        requests[searched] = beam_search(module, source, prompt, rules)
    stories = run_all(engine, requests)
    for request, theirs in requests.items():
        scores = [hypothesis.score if request.beam else None for hypothesis in theirs]
        expected = list(zip((hypothesis.token_ids for hypothesis in theirs), scores, strict=True))
        assert_found_alike(hypotheses_of(stories[request.request_id]), expected)
