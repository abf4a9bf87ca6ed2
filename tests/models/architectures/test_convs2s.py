"""ConvS2S computes the paper's equations: plain float64 loops over words, the same weights."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.architectures.convs2s.config import ConvS2SConfig
from models.architectures.convs2s.module import ConvS2S
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import TranslationBatch
from models.checkpoint import load_checkpoint
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

Array = np.ndarray
SIZES: dict[str, Any] = {
    "vocab_size": 30,
    "embedding_dim": 8,
    "hidden_dim": 4,
    "max_source_tokens": 16,
}


def fresh(**changes: Any) -> ConvS2S:
    torch.manual_seed(0)
    return ConvS2S(ConvS2SConfig(**SIZES | changes)).double().eval()


class Loops:
    """The paper's equations for one sentence; weights by state-dict name."""

    def __init__(self, module: ConvS2S) -> None:
        self.config = module.config
        self.weights = {name: w.numpy() for name, w in module.state_dict().items()}

    def linear(self, name: str, x: Array) -> Array:
        return self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]

    def embed(self, stack: str, side: str, ids: list[int]) -> list[Array]:
        name = "embedding" if self.config.tied_embeddings else f"{side}_embedding"
        words, positions = self.weights[f"{name}.weight"], self.weights[f"{stack}.positions"]
        return [words[word] + positions[i] for i, word in enumerate(ids)]

    def convolve(self, name: str, xs: list[Array], kernel_size: int, left: int) -> list[Array]:
        """Zeros before and after the sentence; `left` inputs come before each output's own."""
        outputs = []
        for i in range(len(xs)):
            taken = range(i - left, i - left + kernel_size)
            window = [xs[j] if 0 <= j < len(xs) else 0 * xs[0] for j in taken]
            a, b = np.split(self.linear(f"{name}.linear", np.concatenate(window)), 2)
            outputs.append((xs[i] + a / (1 + np.exp(-b))) * math.sqrt(0.5))
        return outputs

    def encode(self, ids: list[int]) -> tuple[list[Array], list[Array]]:
        """z and e of every source word."""
        e = self.embed("encoder", "source", ids)
        xs = [self.linear("encoder.input", x) for x in e]
        size = self.config.encoder_kernel_size
        for layer in range(self.config.encoder_layers):
            xs = self.convolve(f"encoder.blocks.{layer}", xs, size, size // 2)
        return [self.linear("encoder.output", x) for x in xs], e

    def decode(self, z: list[Array], e: list[Array], ids: list[int]) -> list[Array]:
        g = self.embed("decoder", "target", ids)
        hs = [self.linear("decoder.input", x) for x in g]
        size = self.config.decoder_kernel_size
        for layer in range(self.config.decoder_layers):
            name = f"decoder.blocks.{layer}"
            hs = self.convolve(f"{name}.convolution", hs, size, size - 1)
            for i, h in enumerate(hs):
                d = self.linear(f"{name}.attention.query", h) + g[i]
                a = np.exp([d @ z_j for z_j in z])
                c = sum(a_j / a.sum() * (z_j + e_j) for a_j, z_j, e_j in zip(a, z, e, strict=True))
                c *= len(z) * math.sqrt(1 / len(z))
                hs[i] = (h + self.linear(f"{name}.attention.output", c)) * math.sqrt(0.5)
        return [self.linear("decoder.output", h) for h in hs]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"encoder_kernel_size": 5, "decoder_kernel_size": 2, "encoder_layers": 2},
        {"encoder_kernel_size": 1, "decoder_kernel_size": 1, "tied_embeddings": False},
    ],
)
@torch.inference_mode()
def test_readouts_equal_plain_loops_under_any_padding(changes: dict) -> None:
    module = fresh(**changes)
    loops = Loops(module)
    lengths = torch.tensor([3, 9, 1])
    source, target = torch.randint(3, 30, (3, 9)), torch.randint(3, 30, (3, 6))
    actual = module(TranslationBatch(target, target, source, lengths))
    for row, length in enumerate(lengths.tolist()):
        z, e = loops.encode(source[row, :length].tolist())
        expected = loops.decode(z, e, target[row].tolist())
        np.testing.assert_allclose(actual[row].numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel_size", [1, 2, 5])
@torch.inference_mode()
def test_windows_of_the_last_inputs_are_all_that_steps_need(kernel_size: int) -> None:
    module = fresh(decoder_kernel_size=kernel_size)
    source, lengths = torch.randint(3, 30, (2, 7)), torch.tensor([7, 4])
    target = torch.randint(3, 30, (2, 8))
    whole = module(TranslationBatch(target, target, source, lengths))
    state = module.encode(source, lengths)
    for position in range(8):
        readout, state = module.step(target[:, position], state)
        torch.testing.assert_close(readout, whole[:, position])
        assert {window.shape[1] for window in state.windows} == {kernel_size - 1}


def test_the_encoder_gets_its_gradient_divided_by_the_number_of_attentions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = fresh(decoder_layers=3, tied_embeddings=False)
    source, lengths = torch.randint(3, 30, (2, 5)), torch.tensor([5, 5])
    target = torch.randint(3, 30, (2, 4))

    def gradients() -> tuple[torch.Tensor, torch.Tensor]:
        module.zero_grad()
        module(TranslationBatch(target, target, source, lengths)).square().sum().backward()
        return module.encoder.output.bias.grad.clone(), module.target_embedding.weight.grad.clone()

    encoder, decoder = gradients()
    monkeypatch.setattr(torch.Tensor, "register_hook", lambda *_: None)
    undivided, same = gradients()
    torch.testing.assert_close(undivided, 3 * encoder)
    torch.testing.assert_close(same, decoder)


def test_signals_keep_their_size_through_the_layers() -> None:
    torch.manual_seed(0)
    config = ConvS2SConfig(**SIZES | {"embedding_dim": 128, "hidden_dim": 128}, dropout=0.0)
    module = ConvS2S(config)
    source, lengths = torch.randint(3, 30, (8, 16)), torch.full((8,), 16)
    with torch.inference_mode():
        state = module.encode(source, lengths)
        embedded = module.embedding(source) + module.encoder.positions
        readout = module(TranslationBatch(source, source, source, lengths))
    for signal in (state.keys, readout):
        assert 0.5 < float(signal.std() / embedded.std()) < 2


def test_what_cannot_be_is_said_at_once() -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config(
            {
                "architecture": "convs2s",
                "vocab_size": 0,
                "embedding_dim": 0,
                "encoder_kernel_size": 4,
            }
            | {"attention": "local"}
        )
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    for words in ("vocab_size", "must be odd", "embedding_dim: input", "luong"):
        assert words in text


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("convs2s", {}),
        ("convs2s", {"encoder_kernel_size": 5, "decoder_kernel_size": 2, "decoder_layers": 3}),
        ("convs2s", {"embedding_dim": 21}),
        ("convs2s", {"encoder_kernel_size": 1, "decoder_kernel_size": 1, "embedding_dim": 40}),
        ("convs2s", {"tied_embeddings": False, "encoder_layers": 1, "hidden_dim": 17}),
        ("fconv", {}),
        (
            "fconv",
            {
                "encoder": [{"dim": 17, "kernel_size": 4}],
                "tied_embeddings": False,
                "readout_dim": 20,
            },
        ),
        (
            "fconv",
            {"embedding_dim": 21, "readout_dim": 21, "decoder": [{"dim": 24, "kernel_size": 2}]},
        ),
        ("fconv", {"tied_embeddings": False, "source_vocab_size": 400}),
    ],
)
def test_log_probabilities_are_those_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / architecture, examples_of(architecture)) < 2e-5


def test_attention_is_that_of_every_decoder_layer(tmp_path: Path) -> None:
    bundle = tiny_bundle("convs2s", tmp_path, Precision.FP32, decoder_layers=3)
    source = examples_of("convs2s").sources[0]
    rows = GraphRows(open_bundle(bundle), [source], wants_attention=True)
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
    actual = rows.outputs["attention"][0][:, : len(source)]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
