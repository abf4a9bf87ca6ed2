"""RCTM computes the paper's equations: plain float64 loops over columns, the same weights."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.architectures.rctm.config import RctmConfig
from models.architectures.rctm.module import Rctm
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import TranslationBatch
from models.checkpoint import load_checkpoint
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

Array = np.ndarray
SIZES: dict[str, Any] = {"vocab_size": 30, "embedding_dim": 5, "readout_dim": 5, "hidden_dim": 4}


def fresh(**changes: Any) -> Rctm:
    torch.manual_seed(0)
    return Rctm(RctmConfig(**SIZES | {"max_source_tokens": 20} | changes)).double().eval()


def sentence_vector(columns: list[Array], kernels: list[Array]) -> Array:
    """csm(e) of a sentence's word vectors; kernels [features, size]."""
    for kernel in kernels:
        if len(columns) == 1:
            break
        size = min(kernel.shape[1], len(columns))
        columns = [
            np.tanh(sum(kernel[:, i] * columns[first + i] for i in range(size)))
            for first in range(len(columns) - size + 1)
        ]
    (vector,) = columns
    return vector


@torch.inference_mode()
def test_readouts_equal_plain_loops_at_every_length() -> None:
    module = fresh(tied_embeddings=False)
    weights = {name: w.numpy() for name, w in module.state_dict().items()}
    kernels = [weights[f"sentence.kernels.{i}"][:, 0] for i in range(len(module.sentence.kernels))]
    lengths = torch.arange(1, 21)
    source, target = torch.randint(3, 30, (20, 20)), torch.randint(3, 30, (20, 3))
    actual = module(TranslationBatch(target, target, source, lengths))
    for row, length in enumerate(lengths.tolist()):
        words = [weights["source_embedding.weight"][i] * 5**0.5 for i in source[row, :length]]
        sentence = weights["decoder.context.weight"] @ sentence_vector(words, kernels)
        hidden = np.zeros(4)
        for position, word in enumerate(target[row]):
            embedded = weights["target_embedding.weight"][word] * 5**0.5
            inputs = weights["decoder.input.weight"] @ embedded
            recurrent = weights["decoder.hidden.weight"] @ hidden
            hidden = np.tanh(inputs + recurrent + sentence)
            readout = weights["readout.weight"] @ hidden
            np.testing.assert_allclose(actual[row, position], readout, rtol=1e-10, atol=1e-12)


@torch.inference_mode()
def test_the_last_kernel_is_cut_to_what_is_left() -> None:
    module = fresh()
    words = torch.randn(1, 5, 5).double()  # kernels of 2 and 3 leave two columns of five
    vector = module.sentence(words, torch.tensor([5]))
    with torch.no_grad():
        module.sentence.kernels[2][:, 0, 2:] = 1e3
        module.sentence.kernels[3][:] = 1e3
    assert torch.equal(module.sentence(words, torch.tensor([5])), vector)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "mut1"])
@torch.inference_mode()
def test_steps_equal_the_whole_sequence(cell: str) -> None:
    module = fresh(cell=cell)
    source, lengths = torch.randint(3, 30, (3, 9)), torch.tensor([9, 1, 6])
    target = torch.randint(3, 30, (3, 7))
    whole = module(TranslationBatch(target, target, source, lengths))
    state = module.encode(source, lengths)
    for position in range(7):
        readout, state = module.step(target[:, position], state)
        torch.testing.assert_close(readout, whole[:, position])


@pytest.mark.parametrize("num_tokens", [2, 3, 4, 5, 128])
def test_kernels_just_suffice_for_the_longest_source(num_tokens: int) -> None:
    sizes = RctmConfig(**SIZES, max_source_tokens=num_tokens).kernel_sizes
    left = itertools.accumulate(sizes, lambda columns, size: columns - size + 1, initial=num_tokens)
    *before, last = left
    assert last <= 1
    assert all(columns > 1 for columns in before)


def test_what_cannot_be_is_said_at_once() -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": "rctm", "vocab_size": 9, "readout_dim": 3, "norm": "pre"})
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 2
    assert "readout_dim 3" in text
    assert "transformer" in text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell": "lstm", "tied_embeddings": False, "readout_dim": 18},
        {"cell": "mut2", "hidden_dim": 17, "embedding_dim": 11, "readout_dim": 11},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("rctm", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "rctm", examples_of("rctm")) < 2e-5


def test_sentences_of_every_length_are_those_of_torch(tmp_path: Path) -> None:
    bundle = tiny_bundle("rctm", tmp_path, Precision.FP32, max_source_tokens=24)
    random = np.random.default_rng(0)
    sources = [random.integers(3, 250, length).tolist() for length in range(1, 25)]
    actual = GraphRows(open_bundle(bundle), sources).states["context"]
    module: Any = load_module(load_checkpoint(tmp_path / "rctm"))
    for row, source in zip(actual, sources, strict=True):
        with torch.inference_mode():
            state = module.encode(torch.tensor([source]), torch.tensor([len(source)]))
        np.testing.assert_allclose(row, state.context[0].numpy(), atol=2e-6)


def test_a_bundle_without_attention_opens_and_has_no_alignment_heads(tmp_path: Path) -> None:
    manifest = open_bundle(tiny_bundle("rctm", tmp_path, Precision.INT8)).manifest
    assert set(manifest.graphs) == {"encode", "step"}
    assert manifest.alignment_heads == ()
    assert manifest.num_attention_heads == 0
