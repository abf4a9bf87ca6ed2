"""ConvS2S's graphs compute what its torch module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.checking.rows import Rows
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"encoder_kernel_size": 5, "decoder_kernel_size": 2, "decoder_layers": 3},
        {"embedding_dim": 21},
        {"encoder_kernel_size": 1, "decoder_kernel_size": 1, "embedding_dim": 40},
        {"tied_embeddings": False, "encoder_layers": 1, "hidden_dim": 17},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("convs2s", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "convs2s", examples_of("convs2s")) < 2e-5


def test_attention_is_that_of_every_decoder_layer(tmp_path: Path) -> None:
    import torch

    from models.loading import load_module
    from models.storage.checkpoint import load_checkpoint

    bundle = tiny_bundle("convs2s", tmp_path, Precision.FP32, decoder_layers=3)
    source = examples_of("convs2s").sources[0]
    rows = Rows(open_bundle(bundle), [source], wants_attention=True)
    module: Any = load_module(load_checkpoint(tmp_path / "convs2s"))
    expected: list[np.ndarray] = []

    def observe(attention: Any, inputs: Any) -> None:
        hidden, embedded, state = inputs
        scores = state.keys[0] @ (attention.query(hidden) + embedded)[0, 0]
        expected.append(scores.softmax(-1).numpy())

    for block in module.decoder.blocks:
        block.attention.register_forward_pre_hook(observe)
    with torch.inference_mode():
        module.step(torch.tensor([1]), module.encode(torch.tensor([source]), torch.tensor([18])))
    rows.read([[1]])
    found = rows.outputs["attention"][0][:, : len(source)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
