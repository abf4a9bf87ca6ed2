"""Recurrent language models: their readouts equal plain float64 loops, steps equal the whole."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.bundling.writer import build_model
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import LanguageBatch
from models.checkpoint import CheckpointError
from models.decoding import BeamRules, beam_search, continue_batch, greedy
from models.loading import build
from serving.bundle.manifest import Precision, StateKind
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle, tiny_checkpoint

Array = np.ndarray
NUM_TOKENS = 40  # beyond the positions that attention takes at once
ATTENTIVE = {"architecture": "recurrent-lm", "attention": {"dim": 5}}
KEY_VALUE = {"architecture": "key-value-lm", "window": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"architecture": "recurrent-lm"},
    "deep": {"architecture": "recurrent-lm", "cell": "lstm", "num_layers": 2},
    "attentive": ATTENTIVE,
    "attention": KEY_VALUE | {"parts": "attention", "tied_embeddings": False},
    "key-value": KEY_VALUE | {"parts": "key-value", "cell": "mut1", "window": 20},
    "key-value-predict": KEY_VALUE | {"parts": "key-value-predict"},
    "bigram": {"architecture": "ngram-lm", "order": 2, "cell": "rnn"},
    "4-gram": {"architecture": "ngram-lm", "order": 4},
}
every_model = pytest.mark.parametrize("name", CONFIGS)


def fresh(name: str, seed: int = 0, **changes: Any) -> nn.Module:
    sizes = {"vocab_size": 60, "embedding_dim": 8, "hidden_dim": 12, "context_length": 64}
    torch.manual_seed(seed)
    return build(parse_config(sizes | CONFIGS[name] | changes)).eval()


def random_ids(num_rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, 60, (num_rows, length))


@every_model
@torch.inference_mode()
def test_readouts_equal_their_equations(name: str) -> None:
    module, ids = fresh(name).double(), random_ids(2, NUM_TOKENS)
    actual = module(LanguageBatch(ids, ids))
    outputs, _ = module.recurrent(module.embedding(ids) * 8**0.5)
    weights = {key: value.numpy() for key, value in module.readout.state_dict().items()}
    for row in range(2):
        expected = READOUTS[module.config.architecture](
            module.config, outputs[row].numpy(), weights
        )
        np.testing.assert_allclose(actual[row], expected, rtol=1e-9, atol=1e-12)


def recurrent_readouts(config: Any, outputs: Array, weights: dict[str, Array]) -> list[Array]:
    if config.attention is not None:
        return attended(outputs, outputs, outputs, weights, window=len(outputs))
    return [np.tanh(weights["combine.weight"] @ h) for h in outputs]


def key_value_readouts(config: Any, outputs: Array, weights: dict[str, Array]) -> list[Array]:
    k = config.hidden_dim // {"attention": 1, "key-value": 2, "key-value-predict": 3}[config.parts]
    match config.parts:
        case "attention":
            keys, values, predictions = outputs, outputs, outputs
        case "key-value":
            keys, values, predictions = outputs[:, :k], outputs[:, k:], outputs[:, k:]
        case _:
            keys, values, predictions = outputs[:, :k], outputs[:, k : 2 * k], outputs[:, 2 * k :]
    return attended(keys, values, predictions, weights, config.window)


def attended(
    keys: Array, values: Array, predictions: Array, weights: dict[str, Array], window: int
) -> list[Array]:
    """Daniluk et al. 2017, the three kinds of attention, position by position."""
    w_y, w_h, w = (weights[f"{name}.weight"] for name in ("key", "query", "score"))
    w_r, w_x = np.split(weights["combine.weight"], 2, axis=1)
    actual = []
    for t, (key, prediction) in enumerate(zip(keys, predictions, strict=True)):
        seen = range(max(0, t - window), t)
        scores = [float(w[0] @ np.tanh(w_y @ keys[s] + w_h @ key)) for s in seen]
        alphas = np.exp(scores) / np.exp(scores).sum()
        context = np.zeros_like(values[0])
        for alpha, s in zip(alphas, seen, strict=True):
            context += alpha * values[s]
        actual.append(np.tanh(w_r @ context + w_x @ prediction))
    return actual


def ngram_readouts(config: Any, outputs: Array, weights: dict[str, Array]) -> list[Array]:
    """Daniluk et al. 2017, the N-gram RNN, position by position."""
    k = config.hidden_dim // (config.order - 1)
    actual = []
    for t in range(len(outputs)):
        parts = [
            outputs[t - i, i * k : (i + 1) * k] if t >= i else np.zeros(k)
            for i in range(config.order - 1)
        ]
        actual.append(np.tanh(weights["combine.weight"] @ np.concatenate(parts)))
    return actual


READOUTS: dict[str, Callable[[Any, Array, dict[str, Array]], list[Array]]] = {
    "recurrent-lm": recurrent_readouts,
    "key-value-lm": key_value_readouts,
    "ngram-lm": ngram_readouts,
}


@every_model
@torch.inference_mode()
def test_steps_equal_the_whole_sequence(name: str) -> None:
    module, ids = fresh(name), random_ids(2, NUM_TOKENS)
    whole = module(LanguageBatch(ids, ids))
    hidden, state = module.read(ids[:, :5], module.empty_state())
    torch.testing.assert_close(hidden, whole[:, :5], rtol=1e-4, atol=1e-5)
    for position in range(5, NUM_TOKENS):
        hidden, state = module.step(ids[:, position], state)
        torch.testing.assert_close(hidden, whole[:, position], rtol=1e-4, atol=1e-5)


@every_model
def test_the_batched_loop_equals_one_prompt_at_a_time(name: str) -> None:
    module = fresh(name, seed=3)
    prompts = random_ids(3, 4).tolist()
    assert continue_batch(module, prompts, 10) == [
        greedy(module, None, prompt, 10) for prompt in prompts
    ]


@every_model
def test_one_beam_is_greedy(name: str) -> None:
    """Beam search takes rows of every tensor of the state."""
    module, prompt = fresh(name, seed=4), random_ids(1, 4)[0].tolist()
    [best] = beam_search(module, None, prompt, BeamRules(1, 8))
    expected = greedy(module, None, prompt, 8)
    assert best.token_ids[: len(expected)] == expected


@torch.inference_mode()
def test_what_is_kept_of_the_past_is_what_can_still_be_read() -> None:
    kept = {}
    for name in ("plain", "attentive", "attention", "4-gram"):
        module = fresh(name)
        _, state = module.read(random_ids(2, 9), module.empty_state())
        kept[name] = state.outputs.shape[1]
    assert kept == {"plain": 0, "attentive": 9, "attention": 3, "4-gram": 2}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("key-value", {"hidden_dim": 9}, "hidden_dim 9 must be a multiple of 2"),
        ("key-value-predict", {"hidden_dim": 16}, "hidden_dim 16 must be a multiple of 3"),
        ("4-gram", {"hidden_dim": 10}, "hidden_dim 10 must be a multiple of 3"),
        ("4-gram", {"order": 1}, "order"),
        ("attention", {"window": 0}, "window"),
        ("attention", {"window": 999}, "window 999 is longer than context_length"),
        ("plain", {"attention": "additive"}, "attention: must be a table of dim"),
        ("plain", {"attention": {}}, "attention.dim: is required"),
        ("plain", {"attention_dim": 4}, "recurrent-lm has no such option; attention.dim is one"),
        ("plain", {"window": 3}, "window: recurrent-lm has no such option"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        fresh(name, **changes)


NUM_STEPS = 30  # beyond every window here


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        (
            "recurrent-lm",
            {"attention": None, "num_layers": 2, "cell": "lstm"},
        ),
        (
            "recurrent-lm",
            {"attention": None, "tied_embeddings": False, "cell": "mut2"},
        ),
        ("recurrent-lm", {"attention": {"dim": 9}, "tied_embeddings": False}),
        ("recurrent-lm", {"num_layers": 2, "cell": "rnn"}),
        ("key-value-lm", {"parts": "attention", "window": 3}),
        ("key-value-lm", {"parts": "key-value", "window": 1, "num_layers": 2}),
        ("key-value-lm", {"parts": "key-value-predict", "window": 20, "cell": "lstm"}),
        ("ngram-lm", {"order": 2}),
        ("ngram-lm", {"order": 3, "tied_embeddings": False}),
        ("ngram-lm", {"order": 5, "cell": "mut1"}),
    ],
)
def test_log_probabilities_are_those_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, **changes)
    examples = examples_of(architecture, num_steps=NUM_STEPS)
    assert largest_error(bundle, tmp_path / architecture, examples) < 2e-5


@pytest.mark.parametrize(
    ("architecture", "changes", "expected"),
    [
        ("recurrent-lm", {"attention": None}, {}),
        ("recurrent-lm", {}, {"tape_keys": 20, "tape_values": 36}),
        ("key-value-lm", {"window": 5}, {"window_keys": 5 * 12, "window_values": 5 * 12}),
        (
            "key-value-lm",
            {"parts": "attention", "window": 2},
            {"window_keys": 72, "window_values": 72},
        ),
        ("ngram-lm", {"order": 2}, {}),
        ("ngram-lm", {"order": 5}, {"parts": (3 + 2 + 1) * 9}),
    ],
)
def test_no_more_of_the_past_is_kept_than_is_read(
    tmp_path: Path, architecture: str, changes: dict[str, Any], expected: dict[str, int]
) -> None:
    """Numbers beside the cells' states; of a tape, for each position."""
    checkpoint = tiny_checkpoint(architecture, tmp_path, **changes)
    states = build_model(checkpoint, Precision.FP32).states
    sizes = {
        state.name: int(np.prod([axis for axis in state.shape if isinstance(axis, int)]))
        for state in states
    }
    assert expected == {name: size for name, size in sizes.items() if "hidden" not in name}
    appended = {state.name for state in states if state.kind is StateKind.APPEND}
    assert appended == {name for name in expected if name.startswith("tape")}


@pytest.mark.parametrize("architecture", ["recurrent-lm", "key-value-lm", "ngram-lm"])
def test_a_readout_of_another_size_is_refused(tmp_path: Path, architecture: str) -> None:
    checkpoint = tiny_checkpoint(architecture, tmp_path)
    name = "readout.combine.weight"
    weights = {**checkpoint.weights, name: checkpoint.weights[name][:, 1:]}
    with pytest.raises(CheckpointError, match=r"readout\.combine\.weight: has shape"):
        build_model(replace(checkpoint, weights=weights), Precision.FP32)
