"""Mamba-2: the module equals the paper's recurrence, and any parts of a text equal the whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from export.bundling.writer import build_model
from models.architectures.mamba2.config import Mamba2Config
from models.architectures.registry import ModelConfigError
from models.batch import LanguageBatch
from models.decoding import continue_batch, greedy
from models.loading import build
from serving.bundle.manifest import Precision, StateKind
from serving.bundle.opening import Bundle, open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error, torch_log_probabilities
from tests.export.parity import random_ids as random_prompt
from tests.tiny import tiny_bundle, tiny_checkpoint

Array = np.ndarray
NUM_TOKENS = 150  # three chunks, the last one not full
SIZES: dict[str, Any] = {"vocab_size": 60, "d_model": 12, "num_layers": 2, "num_heads": 4}
SIZES |= {"head_dim": 6, "state_dim": 5, "context_length": 256}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"num_groups": 2, "conv_kernel_size": 2, "imported": {"conv_bias": False, "biases": True}},
]
every_variant = pytest.mark.parametrize("changes", VARIANTS, ids=str)


def fresh(**changes: Any):
    torch.manual_seed(0)
    module = build(Mamba2Config(**SIZES, **changes)).eval().double()
    with torch.no_grad():  # so that vectors, too, tell their elements apart
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module


def random_ids(num_rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, 60, (num_rows, length))


@every_variant
@torch.inference_mode()
def test_it_computes_the_recurrence(changes: dict[str, Any]) -> None:
    module, ids = fresh(**changes), random_ids(2, NUM_TOKENS)
    weights = {name: value.numpy() for name, value in module.state_dict().items()}
    actual = module(LanguageBatch(ids, ids))
    for row in range(2):
        expected = hidden_of(module.config, weights, ids[row].tolist())
        np.testing.assert_allclose(actual[row], expected, rtol=1e-9, atol=1e-12)


def hidden_of(config: Mamba2Config, weights: dict[str, Array], ids: list[int]) -> Array:
    """Go through a text token by token: [length, d_model]."""
    u = weights["embedding.weight"][ids]
    for number in range(config.num_layers):
        own = f"layers.{number}."
        layer = {k.removeprefix(own): v for k, v in weights.items() if k.startswith(own)}
        normed = normalised(u, config) * layer["norm.weight"]
        u = u + mixed(config, {k.removeprefix("mixer."): v for k, v in layer.items()}, normed)
    return normalised(u, config) * weights["norm.weight"]


def mixed(config: Mamba2Config, weights: dict[str, Array], u: Array) -> Array:
    def linear(name: str, x: Array) -> Array:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)

    x, b, c = convolved(config, weights, [linear(name, u) for name in ("x", "B", "C")])
    dt, a = np.log1p(np.exp(linear("dt", u) + weights["dt_bias"])), -np.exp(weights["A_log"])
    outputs = []
    for head in range(config.num_heads):
        p = slice(head * config.head_dim, (head + 1) * config.head_dim)
        group = head * config.num_groups // config.num_heads
        n = slice(group * config.state_dim, (group + 1) * config.state_dim)
        h = np.zeros((config.state_dim, config.head_dim))
        y = np.empty((len(u), config.head_dim))
        for t in range(len(u)):
            h = np.exp(dt[t, head] * a[head]) * h + np.outer(b[t, n], dt[t, head] * x[t, p])
            y[t] = c[t, n] @ h + weights["D"][head] * x[t, p]
        outputs.append(y)
    gated = np.concatenate(outputs, 1) * silu(linear("z", u))
    groups = gated.reshape(len(u), config.num_groups, -1)
    return linear("output", normalised(groups, config).reshape(len(u), -1) * weights["norm.weight"])


def convolved(config: Mamba2Config, weights: dict[str, Array], parts: list[Array]) -> list[Array]:
    joined, kernel = np.concatenate(parts, 1), weights["conv.weight"][:, 0]
    padded = np.concatenate([np.zeros((config.conv_kernel_size - 1, joined.shape[1])), joined])
    taps = [padded[i : i + len(joined)] * kernel[:, i] for i in range(config.conv_kernel_size)]
    actual = silu(np.sum(taps, axis=0) + weights.get("conv.bias", 0))
    return np.split(actual, np.cumsum([part.shape[1] for part in parts])[:-1], axis=1)


def normalised(x: Array, config: Mamba2Config) -> Array:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_epsilon)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


@every_variant
@torch.inference_mode()
def test_parts_of_a_text_equal_the_whole(changes: dict[str, Any]) -> None:
    module, ids = fresh(**changes), random_ids(3, NUM_TOKENS)
    whole = module(LanguageBatch(ids, ids))
    state, actual = module.empty_state(), []
    for part in ids.split([1, 1, 2, 70, 64, 12], 1):
        hidden, state = module.read(part, state)
        actual.append(hidden)
    torch.testing.assert_close(torch.cat(actual, 1), whole)


@torch.inference_mode()
def test_a_batch_says_what_one_text_after_the_other_says() -> None:
    module, prompts = fresh(), [[7, 8, 9], [20, 21, 22]]
    expected = [greedy(module, None, prompt, 9) for prompt in prompts]
    assert continue_batch(module, prompts, 9) == expected


def test_what_is_read_early_is_learned_from_late() -> None:
    module, ids = fresh().train(), random_ids(1, NUM_TOKENS)
    embedded = module.embed(ids).detach().requires_grad_()
    module.embed = lambda _: embedded
    module(LanguageBatch(ids, ids))[0, -1].sum().backward()
    assert embedded.grad is not None
    assert torch.isfinite(embedded.grad).all()
    assert (embedded.grad[0].abs().amax(-1) > 0).all()


TOLERANCE = 5e-5
LENGTHS = (17, 3, 40, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_groups": 1, "tied_embeddings": False, "norm_epsilon": 1e-3},
        {"num_groups": 3, "conv_kernel_size": 2, "imported": {"biases": True, "conv_bias": False}},
        {"num_heads": 1, "num_groups": 1, "head_dim": 1, "state_dim": 1, "conv_kernel_size": 5},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("mamba2", tmp_path, Precision.FP32, **changes)
    error = largest_error(bundle, tmp_path / "mamba2", examples_of("mamba2", num_steps=30))
    assert error < TOLERANCE


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
def test_low_precision_is_near_torch(tmp_path: Path, precision: Precision) -> None:
    bundle = tiny_bundle("mamba2", tmp_path, precision)
    assert_errs_by_rounding(bundle, tmp_path / "mamba2", examples_of("mamba2"))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(tiny_bundle("mamba2", tmp_path, Precision.FP32))


def test_a_prompt_is_read_in_chunks(bundle: Bundle, tmp_path: Path) -> None:
    examples = examples_of("mamba2", num_steps=20)
    expected = torch_log_probabilities(tmp_path / "mamba2", examples)
    for row, target in enumerate(examples.targets):
        rows = GraphRows(bundle, [[]])
        for chunk in (slice(0, 9), slice(9, 10), slice(10, 20)):
            (actual,) = rows.read([target[chunk]])
            assert np.abs(actual - expected[row, chunk.stop - 1]).max() < TOLERANCE


def test_padding_behind_a_prompt_leaves_no_trace(bundle: Bundle) -> None:
    random = np.random.default_rng(0)
    prompts = [random_prompt(random, length) for length in LENGTHS]
    following = [random_prompt(random, length) for length in reversed(LENGTHS)]
    together = GraphRows(bundle, [[]] * len(prompts))
    actual = [together.read(prompts), together.read(following)]
    for row, texts in enumerate(zip(prompts, following, strict=True)):
        alone = GraphRows(bundle, [[]])
        for scores, text in zip(actual, texts, strict=True):
            np.testing.assert_allclose(scores[row], alone.read([text])[0], atol=1e-5)
        for name, state in alone.states.items():
            np.testing.assert_allclose(together.states[name][row], state[0], atol=1e-5)


def test_all_states_are_overwritten_and_no_larger_for_longer_texts(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("mamba2", tmp_path)
    states = build_model(checkpoint, Precision.INT8).states
    assert {state.kind for state in states} == {StateKind.REPLACE, StateKind.UPDATE}
    on_a_gpu = build_model(checkpoint, Precision.BF16).states
    assert {state.kind for state in on_a_gpu} == {StateKind.REPLACE}
    assert {state.dtype for state in states} == {"float32"}
    channels = 6 * 12 + 2 * 2 * 10
    assert [state.shape for state in states] == [(3, channels), (6, 10, 12)] * 2


def test_groups_must_have_as_many_heads(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="num_heads 6 must be a multiple of num_groups 4"):
        tiny_checkpoint("mamba2", tmp_path, num_groups=4)
