"""Recurrent language models' step graphs compute what their torch modules compute."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.exporting import build_model
from models.storage.checkpoint import CheckpointError
from serving.bundle.manifest import Precision, StateKind
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle, tiny_checkpoint

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
