"""The engine over real graphs, small and random, of every family.

What matters most here: a request says the same, bit for bit, alone and in any company.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import Precision, StateKind
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.session import open_graphs
from serving.engine.states.kind import round_span
from serving.errors import BundleError, DeviceError, RequestError
from serving.requests.parameters import SamplingParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.grid import in_turns
from tests.reference_models import is_language_model
from tests.serving.engine.devices import PRECISIONS, assert_alike, config_of, cpu_only
from tests.serving.engine.driving import Story, record_events, run_all, run_alone
from tests.tiny import tiny_bundle

FAMILIES = ["transformer", "bahdanau", "llama", "key-value-lm", "recurrent-lm"]
NewBundle = Callable[[str, Precision], Bundle]


@pytest.fixture(scope="module")
def new_bundle(tmp_path_factory: pytest.TempPathFactory) -> NewBundle:
    opened: dict[tuple[str, Precision], Bundle] = {}

    def new(family: str, precision: Precision) -> Bundle:
        key = (family, precision)
        if key not in opened:
            folder = tiny_bundle(family, tmp_path_factory.mktemp("bundles"), precision)
            opened[key] = open_bundle(folder)
        return opened[key]

    return new


def new_engine(bundle: Bundle, slots: int = 64, **sizes: int) -> Engine:
    return Engine(bundle, config_of(slots=slots, **sizes))


def random_request(request_id: str, bundle: Bundle, rng: np.random.Generator) -> GenerationRequest:
    """Any source or prompt that the bundle takes; greedy or sampled."""
    limits, size = bundle.manifest.limits, bundle.manifest.vocab_size
    source = None
    prompt = rng.integers(3, size, rng.integers(1, limits.max_target_tokens - 1))
    if limits.max_source_tokens is not None:
        source = tuple(rng.integers(3, size, rng.integers(1, limits.max_source_tokens)).tolist())
        prompt = prompt[: rng.integers(0, 4)]
    sampling = SamplingParams(
        temperature=float(rng.choice([0.0, 0.7, 1.0, 1.5])),
        top_k=int(rng.choice([0, 5, 100])),
        top_p=float(rng.choice([1.0, 0.9])),
        seed=int(rng.integers(2**62)),
    )
    return GenerationRequest(request_id, source, tuple(prompt.tolist()), sampling)


@pytest.mark.parametrize(("family", "precision"), in_turns(FAMILIES, PRECISIONS))
def test_a_request_says_the_same_alone_and_among_63_others(
    family: str, precision: Precision, new_bundle: NewBundle
) -> None:
    bundle = new_bundle(family, precision)
    rng = np.random.default_rng(7)
    requests = [random_request(str(i), bundle, rng) for i in range(64)]
    together = run_in_waves(new_engine(bundle), requests, rng)
    engine = new_engine(bundle, slots=1)
    alone = {request.request_id: run_alone(engine, request) for request in requests}
    assert_alike(requests, together, alone)


def run_in_waves(
    engine: Engine, requests: list[GenerationRequest], rng: np.random.Generator
) -> dict[str, Story]:
    stories: dict[str, Story] = {}
    waiting = list(requests)
    while waiting or engine.has_work:
        wave = int(rng.choice([0, 1, 3, 30]))
        engine.submit(*waiting[:wave])
        del waiting[:wave]
        record_events(stories, engine.step())
    return stories


@cpu_only
@pytest.mark.parametrize(("family", "precision"), in_turns(FAMILIES, PRECISIONS, first=1))
def test_greedy_says_what_a_naive_loop_over_the_graphs_says(
    family: str, precision: Precision, new_bundle: NewBundle
) -> None:
    bundle = new_bundle(family, precision)
    rng = np.random.default_rng(3)
    requests = []
    for i in range(20):
        drawn = random_request(str(i), bundle, rng)
        requests.append(GenerationRequest(str(i), drawn.source_ids, drawn.prompt_ids))
    stories = run_all(new_engine(bundle, prefill_chunk=1), requests)
    loop = NaiveLoop(bundle)
    for request in requests:
        assert stories[request.request_id].token_ids == loop.greedy(request)


class NaiveLoop:
    """One sequence, one token at a time, every array made anew."""

    def __init__(self, bundle: Bundle) -> None:
        self.manifest = bundle.manifest
        self.graphs = open_graphs(bundle, EngineConfig(threads=1))

    def greedy(self, request: GenerationRequest) -> list[int]:
        tokens, limits = self.manifest.tokens, self.manifest.limits
        target = [*tokens.prompt_prefix, *request.prompt_ids]
        num_prompt = len(target)
        states = self._first_states(request)
        source_length = np.array([len(request.source_ids or (0,))], np.int32)
        for position in range(limits.max_target_tokens - 1):
            inputs: dict[str, Array] = {
                "ids": np.array([[target[position]]], np.int64),
                "past_lengths": np.array([position], np.int32),
                "total_lengths": np.array([position + 1], np.int32),
                "source_lengths": source_length,
            }
            best, states = self._step(inputs, states)
            if position + 1 < num_prompt:
                continue
            if best in tokens.stop:
                break
            target.append(best)
        return target[num_prompt:]

    def _first_states(self, request: GenerationRequest) -> dict[str, Array]:
        sizes = {"length": self.manifest.limits.max_target_tokens}
        sizes["source"] = round_span(len(request.source_ids or (0,)))
        states = {}
        for spec in self.manifest.states:
            shape = (1, *(sizes.get(str(axis), axis) for axis in spec.shape))
            states[spec.name] = np.zeros([int(axis) for axis in shape], spec.dtype)
        if self.graphs.encode is not None and request.source_ids is not None:
            ids = np.full((1, sizes["source"]), self.manifest.tokens.pad, np.int64)
            ids[0, : len(request.source_ids)] = request.source_ids
            lengths = np.array([len(request.source_ids)], np.int32)
            outputs = {spec.name: spec for spec in self.manifest.graphs["encode"].outputs}
            self.graphs.encode.bind(
                {"source_ids": ids, "source_lengths": lengths},
                {name: states[name] for name in outputs},
            )()
        return states

    def _step(
        self, inputs: dict[str, Array], states: dict[str, Array]
    ) -> tuple[int, dict[str, Array]]:
        declared = {spec.name for spec in self.manifest.graphs["step"].inputs}
        inputs = {name: array for name, array in inputs.items() if name in declared}
        size, window = self.manifest.vocab_size, self.manifest.window
        outputs: dict[str, Array] = {
            "logits": np.zeros((1, size), np.float32),
            "top_logp": np.zeros((1, window), np.float32),
            "top_ids": np.zeros((1, window), np.int64),
            "log_normaliser": np.zeros(1, np.float32),
        }
        following = dict(states)
        for spec in self.manifest.states:
            if spec.kind is StateKind.REPLACE:
                following[spec.name] = np.zeros_like(states[spec.name])
        changing = {
            f"{spec.name}.next": following[spec.name]
            for spec in self.manifest.states
            if spec.kind is not StateKind.CONSTANT
        }
        self.graphs.step.bind(inputs | states, outputs | changing)()
        return int(outputs["logits"].argmax()), following


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_again_and_another_seed_something_else(
    family: str, new_bundle: NewBundle
) -> None:
    bundle = new_bundle(family, PRECISIONS[0])
    source = None if is_language_model(family) else (5, 6, 7)

    def said(seed: int) -> list[tuple[int, float]]:
        sampling = SamplingParams(temperature=1.0, seed=seed)
        request = GenerationRequest("r", source, (9,), sampling)
        return run_alone(new_engine(bundle, slots=2), request).said

    assert said(1) == said(1)
    assert said(1) != said(2)


def test_a_prompt_may_fill_the_context(new_bundle: NewBundle) -> None:
    bundle = new_bundle("llama", PRECISIONS[0])
    engine = new_engine(bundle, slots=2, prefill_chunk=7)
    context = bundle.manifest.limits.max_target_tokens
    prefix = len(bundle.manifest.tokens.prompt_prefix)
    prompt = tuple(range(5, 5 + context - prefix - 1))
    final = run_alone(engine, GenerationRequest("r", None, prompt)).final
    assert isinstance(final, FinishedEvent)
    assert final.num_prompt_tokens == context - 1
    assert final.num_generated_tokens == 1


@pytest.mark.parametrize("family", ["transformer", "bahdanau"])
def test_a_source_may_be_as_long_as_the_limit(family: str, new_bundle: NewBundle) -> None:
    bundle = new_bundle(family, PRECISIONS[0])
    limits = bundle.manifest.limits
    assert limits.max_source_tokens is not None
    source = tuple(5 + i % 200 for i in range(limits.max_source_tokens))
    final = run_alone(new_engine(bundle, slots=2), GenerationRequest("r", source)).final
    assert isinstance(final, FinishedEvent)
    assert final.reason is FinishReason.STOP or final.num_generated_tokens == (
        limits.max_target_tokens - final.num_prompt_tokens
    )


@cpu_only
def test_the_source_may_have_more_words_than_the_target(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 270, "source_vocab_size": 300, "tied_embeddings": False}
    engine = Engine(
        open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP32, **sizes)), EngineConfig()
    )
    story = run_alone(engine, GenerationRequest("long word", (299, 2), max_new_tokens=3))
    assert isinstance(story.final, FinishedEvent)
    with pytest.raises(RequestError, match="ids go from 0 to 299"):
        engine.submit(GenerationRequest("beyond", (300, 2)))
    with pytest.raises(RequestError, match="ids go from 0 to 269"):
        engine.submit(GenerationRequest("beyond", (5, 2), forced_ids=(270,)))


@cpu_only
def test_cuda_is_refused_where_there_is_none(new_bundle: NewBundle) -> None:
    config = EngineConfig(device="cuda")
    with pytest.raises(DeviceError, match="--precision bf16"):
        Engine(new_bundle("transformer", Precision.INT8), config)
    with pytest.raises(DeviceError, match=r"attendant-server\[gpu\]"):
        Engine(new_bundle("transformer", Precision.FP16), config)


@cpu_only
def test_a_graph_that_does_not_load_is_a_problem_of_the_bundle(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP32))
    bundle.graph_path("step").write_bytes(b"not a graph")
    with pytest.raises(BundleError, match=r"step\.onnx"):
        Engine(bundle, EngineConfig(threads=1))
