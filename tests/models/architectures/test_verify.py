"""Several tokens of a row are scored at once to the bit as the step graph scores single ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import VERIFY, Manifest, Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_graphs
from tests.tiny import (
    LIKE_BLOOM,
    LIKE_COMMAND,
    LIKE_DEEPSEEK,
    LIKE_GEMMA,
    LIKE_GPT_OSS,
    LIKE_HUNYUAN,
    LIKE_OLMO,
    LIKE_PHI,
    tiny_bundle,
)

CAPACITY = 64
PAST_LENGTHS = (1, 17, CAPACITY - 2, 40)  # one row's tokens go beyond its last position

Arrays = dict[str, np.ndarray]


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {}),
        ("llama", LIKE_GEMMA),
        ("llama", LIKE_DEEPSEEK),
        ("llama", LIKE_GPT_OSS),
        ("llama", LIKE_HUNYUAN),
        ("llama", LIKE_OLMO),
        ("gpt2", {"window": 3, "ffn_dim": 50}),
        ("gpt-neox", LIKE_PHI),
        ("gpt-neox", LIKE_BLOOM),
        ("gpt-neox", LIKE_COMMAND),
    ],
)
def test_scores_and_states_are_those_of_single_steps(
    tmp_path: Path, architecture: str, changes: dict[str, Any], precision: Precision
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, precision, **changes))
    graphs = open_graphs(bundle, EngineConfig(threads=1, speculation=True))
    assert graphs.verify is not None
    manifest, count = bundle.manifest, bundle.manifest.num_verified
    random = np.random.default_rng(0)
    ids = random.integers(3, manifest.vocab_size, (len(PAST_LENGTHS), count))
    shapes = {
        state.name: [n if isinstance(n, int) else CAPACITY for n in state.shape]
        for state in manifest.states
    }
    filled = {
        name: random.standard_normal((len(ids), *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }

    stepped = {name: array.copy() for name, array in filled.items()}
    scores = new_scores(manifest, len(ids), count)
    for i in range(count):
        totals = np.minimum(np.add(PAST_LENGTHS, 1 + i), CAPACITY).astype(np.int32)
        lengths = {"past_lengths": totals - 1, "total_lengths": totals}
        actual = new_scores(manifest, len(ids))
        of_states = {f"{name}.next": array for name, array in stepped.items()}
        inputs: Arrays = {"ids": ids[:, i : i + 1].copy(), **lengths, **stepped}
        assert graphs.step is not None
        graphs.step.bind(inputs, actual | of_states)()
        for name, array in actual.items():
            scores[name].reshape(len(ids), count, -1)[:, i] = array.reshape(len(ids), -1)

    verified = {name: array.copy() for name, array in filled.items()}
    actual = new_scores(manifest, len(ids), count)
    names = [spec.name for spec in manifest.graphs[VERIFY].outputs if spec.name not in actual]
    of_states = {name: verified[name.partition(".next")[0]] for name in names}
    together: Arrays = {"ids": ids, "past_lengths": np.array(PAST_LENGTHS, np.int32), **verified}
    graphs.verify.bind(together, actual | of_states)()

    for expected, ours in ((scores, actual), (stepped, verified)):
        assert {
            name for name in expected if not np.array_equal(expected[name], ours[name])
        } == set()


def new_scores(manifest: Manifest, num_rows: int, count: int = 1) -> Arrays:
    """Room for what a graph says of so many tokens of each row."""
    num = num_rows * count
    return {
        "logits": np.zeros((num, manifest.vocab_size), np.float32),
        "log_normaliser": np.zeros(num, np.float32),
        "top_logp": np.zeros((num, manifest.window), np.float32),
        "top_ids": np.zeros((num, manifest.window), np.int64),
    }


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_graphs_for_devices_choose_one_token_at_a_time(
    tmp_path: Path, precision: Precision
) -> None:
    assert VERIFY not in open_bundle(tiny_bundle("llama", tmp_path, precision)).manifest.graphs


@pytest.mark.parametrize("architecture", ["ngram-lm", "key-value-lm", "recurrent-lm"])
def test_what_states_overwrite_cannot_be_taken_back(tmp_path: Path, architecture: str) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP32))
    assert VERIFY not in bundle.manifest.graphs and bundle.manifest.num_verified == 0
