"""Mamba-2's graph computes what its torch module computes, a token at a time or many at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.exporting import build_model
from export.checking.rows import Rows
from models.architectures.registry import ModelConfigError
from serving.bundle.manifest import Precision, StateKind
from serving.bundle.opening import Bundle, open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error, random_ids, torch_log_probabilities
from tests.tiny import tiny_bundle, tiny_checkpoint

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
        rows = Rows(bundle, [[]])
        for chunk in (slice(0, 9), slice(9, 10), slice(10, 20)):
            (found,) = rows.read([target[chunk]])
            assert np.abs(found - expected[row, chunk.stop - 1]).max() < TOLERANCE


def test_padding_behind_a_prompt_leaves_no_trace(bundle: Bundle) -> None:
    random = np.random.default_rng(0)
    prompts = [random_ids(random, length) for length in LENGTHS]
    following = [random_ids(random, length) for length in reversed(LENGTHS)]
    together = Rows(bundle, [[]] * len(prompts))
    found = [together.read(prompts), together.read(following)]
    for row, texts in enumerate(zip(prompts, following, strict=True)):
        alone = Rows(bundle, [[]])
        for scores, text in zip(found, texts, strict=True):
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
