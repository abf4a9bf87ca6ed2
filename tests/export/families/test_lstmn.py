"""The LSTMN's graphs compute what its torch module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.checking.rows import Rows
from models.loading import load_module
from models.storage.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision, StateKind
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fusion": "shallow"},
        {"tied_embeddings": False, "readout_dim": 20, "hidden_dim": 17, "attention_dim": 9},
        {"fusion": "shallow", "hidden_dim": 17, "attention_dim": 9},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("lstmn", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "lstmn", examples_of("lstmn")) < 2e-5


@pytest.mark.parametrize("fusion", ["shallow", "deep"])
@torch.inference_mode()
def test_attention_is_that_to_the_source(tmp_path: Path, fusion: str) -> None:
    bundle = tiny_bundle("lstmn", tmp_path, Precision.FP32, fusion=fusion)
    source, target = (each[0] for each in vars(examples_of("lstmn")).values())
    rows = Rows(open_bundle(bundle), [source], wants_attention=True)
    module: Any = load_module(load_checkpoint(tmp_path / "lstmn"))
    state = module.encode(torch.tensor([source]), torch.tensor([len(source)]))
    for token_id in target:
        inputs = module.fusion.project(module.embed(torch.tensor([token_id])))
        *_, expected = module.fusion(inputs, state)
        _, state = module.step(torch.tensor([token_id]), state)
        rows.read([[token_id]])
        found = rows.outputs["attention"][0, 0]
        np.testing.assert_allclose(found[: len(source)], expected[0], rtol=1e-4, atol=1e-6)
        assert not found[len(source) :].any()


def test_its_tape_is_an_append_state(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("lstmn", tmp_path, Precision.FP32))
    kinds = {state.name: state.kind for state in bundle.manifest.states}
    assert kinds["tape_keys"] is kinds["tape_values"] is StateKind.APPEND
