"""Luong's model computes the paper's equations: plain float64 loops over words, equal weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.architectures.luong.config import LuongConfig
from models.architectures.luong.module import Luong
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import TranslationBatch
from models.checkpoint import load_checkpoint
from models.decoding import greedy, translate_batch
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

Array = np.ndarray
SIZES: dict[str, Any] = {
    "vocab_size": 30,
    "embedding_dim": 4,
    "hidden_dim": 6,
    "readout_dim": 4,
    "max_source_tokens": 16,
    "max_target_tokens": 16,
}
ATTENTIONS: list[dict[str, Any]] = [
    {"attention": {"kind": "global"}},
    {"attention": {"kind": "local-m", "window": 0}},
    {"attention": {"kind": "local-m", "window": 1}},
    {"attention": {"kind": "local-m", "window": 2}},
    {"attention": {"kind": "local-p", "window": 1}},
    {"attention": {"kind": "local-p", "window": 3}},
    {"hard_attention": True},
    {"hard_attention": True, "attention": {"kind": "local-p", "window": 3}},
]
SOURCE, TARGET = [3, 9, 4, 12, 25, 2], [1, 7, 7, 20, 3, 11, 5, 29, 6]  # the longer is the target


def fresh(**changes: Any) -> Luong:
    torch.manual_seed(0)
    module = Luong(LuongConfig(**SIZES | changes)).eval()
    for parameter in module.parameters():  # sharper than fresh weights, so that options matter
        torch.nn.init.normal_(parameter, std=0.7)
    return module


class Loops:
    """The paper's equations for one sentence; weights by state-dict name."""

    def __init__(self, module: Luong) -> None:
        self.config = module.config
        self.weights = {name: w.double().numpy() for name, w in module.state_dict().items()}

    def lstm(self, x: Array, h: Array, c: Array, names: list[str]) -> tuple[Array, Array]:
        """`names`: of the weights of x and of h, and of their biases."""
        w, u, b, d = (self.weights[name] for name in names)
        enter, keep, new, leave = np.split(w @ x + b + u @ h + d, 4)
        c = sigmoid(keep) * c + sigmoid(enter) * np.tanh(new)
        return sigmoid(leave) * np.tanh(c), c

    def encode(self, ids: list[int]) -> tuple[list[Array], list[tuple[Array, Array]]]:
        """Top hidden states of every source word, and the last state of every layer."""
        turn = -1 if self.config.reversed_source else 1
        outputs, last = [self.weights["embedding.weight"][i] * 2 for i in ids[::turn]], []
        for layer in range(self.config.num_layers):
            h = c = np.zeros(self.config.hidden_dim)
            parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            names = [f"encoder.{part}_l{layer}" for part in parts]
            hiddens = []
            for x in outputs:
                h, c = self.lstm(x, h, c, names)
                hiddens.append(h)
            outputs = hiddens
            last.append((h, c))
        return outputs[::turn], last

    def decode(self, target: list[int], memory: list[Array], layers: list) -> Array:
        """Attentional vectors of every target word."""
        fed, vectors = np.zeros(self.config.readout_dim), []
        for t, word in enumerate(target, start=1):
            x = self.weights["embedding.weight"][word] * 2
            for layer, (h, c) in enumerate(layers):
                name = f"decoder.layers.{layer}"
                pieces = ("input.weight", "hidden.weight", "input.bias", "hidden.bias")
                names = [f"{name}.{piece}" for piece in pieces]
                if layer == 0 and self.config.input_feeding:
                    both = [self.weights[names[0]], self.weights[f"{name}.context.weight"]]
                    self.weights["joined"] = np.concatenate(both, axis=1)
                    x, names[0] = np.concatenate([x, fed]), "joined"
                layers[layer] = self.lstm(x, h, c, names)
                x = layers[layer][0]
            a = self.align(x, memory, t)
            context = sum(a[s] * memory[s] for s in range(len(memory)))
            fed = np.tanh(self.weights["readout.weight"] @ np.concatenate([context, x]))
            vectors.append(fed)
        return np.stack(vectors)

    def align(self, h: Array, memory: list[Array], t: int) -> Array:
        """a_t, over source positions 1 to S."""
        weights = self.soft_alignment(h, memory, t)
        if not self.config.hard_attention:
            return weights
        best = [*weights].index(max(weights))
        return np.array([float(s == best) for s in range(len(memory))])

    def soft_alignment(self, h: Array, memory: list[Array], t: int) -> Array:
        attention, length = self.config.attention, len(memory)
        if attention.kind == "global":
            return softmax([self.score(h, memory, s) for s in range(length)])
        center, window = float(min(t, length)), attention.window
        if attention.kind == "local-p":
            inner = np.tanh(self.weights["attention.center_hidden.weight"] @ h)
            center = length * sigmoid(self.weights["attention.center.weight"][0] @ inner)
        seen = [s for s in range(1, length + 1) if abs(s - center) <= window]
        weights = np.zeros(length)
        likelihoods = softmax([self.score(h, memory, s - 1) for s in seen])
        for s, weight in zip(seen, likelihoods, strict=True):
            is_gaussian = attention.kind == "local-p"
            slope = np.exp(-((s - center) ** 2) / (2 * (window / 2) ** 2)) if is_gaussian else 1
            weights[s - 1] = weight * slope
        return weights

    def score(self, h: Array, memory: list[Array], s: int) -> float:
        each = memory[s]
        match self.config.score:
            case "dot":
                return h @ each
            case "scaled-dot":
                return h @ each / len(h) ** 0.5
            case "location":
                return self.weights["attention.score.place.weight"][s] @ h
        key = self.weights["attention.score.key.weight"]
        if self.config.score == "general":
            return h @ key @ each
        joined = np.concatenate([self.weights["attention.score.query.weight"], key], axis=1)
        inner = np.tanh(joined @ np.concatenate([h, each]))
        return self.weights["attention.score.score.weight"][0] @ inner


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(scores: list[float]) -> Array:
    likelihoods = np.exp(np.array(scores) - max(scores))
    return likelihoods / likelihoods.sum()


@torch.inference_mode()
def test_a_reversed_source_is_attended_to_as_it_stands() -> None:
    module = fresh(attention={"kind": "local-m", "window": 1}, reversed_source=True).double()
    loops = Loops(module)
    expected = loops.decode(TARGET, *loops.encode(SOURCE))
    ids, lengths = torch.tensor([TARGET]), torch.tensor([len(SOURCE)])
    source = torch.tensor([[*SOURCE, 0, 0]])  # padding stays where it is
    actual = module(TranslationBatch(ids, ids, source, lengths))
    np.testing.assert_allclose(actual[0].numpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("score", ["dot", "scaled-dot", "general", "concat", "location"])
@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
@torch.inference_mode()
def test_the_whole_model_equals_its_equations(
    attention: dict[str, Any], score: str, input_feeding: bool
) -> None:
    module = fresh(**attention, score=score, input_feeding=input_feeding).double()
    loops = Loops(module)
    expected = loops.decode(TARGET, *loops.encode(SOURCE))
    ids = torch.tensor([TARGET])
    source, lengths = torch.tensor([SOURCE]), torch.tensor([len(SOURCE)])
    actual = module(TranslationBatch(ids, ids, source, lengths))
    np.testing.assert_allclose(actual[0].numpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cell", ["lstm", "gru", "mut1"])
@pytest.mark.parametrize("changes", [*ATTENTIONS[::2], {"input_feeding": False}], ids=str)
@torch.inference_mode()
def test_steps_equal_the_whole_sequence_whatever_the_padding(
    changes: dict[str, Any], cell: str
) -> None:
    module = fresh(**changes, cell=cell)
    source, lengths = torch.randint(3, 30, (3, 9)), torch.tensor([9, 4, 1])
    target = torch.randint(3, 30, (3, 12))
    whole = module(TranslationBatch(target, target, source, lengths))
    for row, length in enumerate(lengths):
        state = module.encode(source[row : row + 1, :length], lengths[row : row + 1])
        for position in range(12):
            actual, state = module.step(target[row : row + 1, position], state)
            torch.testing.assert_close(actual[0], whole[row, position], rtol=1e-4, atol=1e-5)


def test_hard_attention_is_trained_softly() -> None:
    """A weight that is the largest has no gradient."""
    hidden, source = torch.randn(1, 4, SIZES["hidden_dim"]), torch.tensor([SOURCE])
    for is_training in (True, False):
        module = fresh(hard_attention=True).train(is_training)
        state = module.encode(source, torch.tensor([len(SOURCE)]))
        _, weights = module.attention(hidden, torch.arange(1, 5), state)
        assert (weights.max().item() == 1.0) is not is_training
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4))


def test_the_batched_loop_equals_one_sentence_at_a_time() -> None:
    module = fresh(attention={"kind": "local-p", "window": 2}, num_layers=3)
    sources = [torch.randint(3, 30, (n,)).tolist() for n in (1, 5, 9)]
    assert translate_batch(module, sources, 12) == [
        greedy(module, source, [], 12) for source in sources
    ]


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"window": 4}, ["window: luong has no such option; attention.window is one"]),
        (
            {"attention": {"kind": "global", "window": 4}},
            ["attention.window: global has no such option; local-m, local-p have it"],
        ),
        (
            {"attention": {"kind": "local-p", "window": 0}},
            ["attention.window: input should be greater than 0 (got 0)"],
        ),
        (
            {"attention": "local-p", "bridge": True},
            [
                "attention: must be a table that has a kind, one of global, local-m, local-p"
                " (got 'local-p')",
                "bridge: luong has no such option; imported.bridge is one",
            ],
        ),
        (
            {
                "attention": {
                    "kind": "local-p",
                }
            },
            ["attention.window: is required"],
        ),
        (
            {
                "attention": {
                    "kind": "local-m",
                },
                "readout_dim": 5,
            },
            [
                "attention.window: is required",
                "tied_embeddings needs readout_dim 5 = embedding_dim 4",
            ],
        ),
    ],
)
def test_options_that_do_not_fit_are_all_told(changes: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": "luong", **SIZES, **changes})
    assert caught.value.problems == problems


KINDS: list[dict[str, Any]] = [
    {"score": "dot", "cell": "gru"},
    {"score": "general", "num_layers": 3},
    {"score": "concat", "input_feeding": False},
    {"attention": {"kind": "local-m", "window": 3}, "score": "dot", "input_feeding": False},
    {"attention": {"kind": "local-m", "window": 2}, "score": "concat", "cell": "mut2"},
    {"attention": {"kind": "local-p", "window": 3}, "score": "general", "num_layers": 1},
    {"attention": {"kind": "local-p", "window": 1}, "score": "concat", "hidden_dim": 17},
    {"tied_embeddings": False, "readout_dim": 20, "hidden_dim": 17},
    {"num_layers": 3, "score": "concat", "imported": {"bidirectional": True, "biases": True}},
    {"cell": "gru", "imported": {"bridge": "relu", "readout": "linear", "biases": True}},
    {"score": "dot", "input_feeding": False, "imported": {"bridge": "relu", "bidirectional": True}},
    {
        "attention": {"kind": "local-p", "window": 2},
        "score": "concat",
        "imported": {"biases": True},
    },
    {"tied_embeddings": False, "source_vocab_size": 400},
    {"imported": {"bridge": "linear", "memory_dim": 40, "bidirectional": True}},
    {"score": "concat", "imported": {"bridge": "tanh", "memory_dim": 20, "encoder_layers": 1}},
    {"imported": {"bridge": "top", "memory_dim": 64, "bidirectional": True, "encoder_layers": 3}},
    {"cell": "gru", "input_feeding": False, "imported": {"bridge": "zeros", "memory_dim": 18}},
    {"attention": {"kind": "local-m", "window": 0}},
    {"score": "location", "attention": {"kind": "local-m", "window": 2}},
    {"score": "scaled-dot", "hard_attention": True},
    {"attention": {"kind": "local-p", "window": 3}, "num_layers": 3, "reversed_source": True},
    {"score": "dot", "cell": "gru-reset-before", "reversed_source": True},
]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("luong", tmp_path, Precision.FP32, **changes)
    examples = examples_of("luong", num_steps=20)  # longer than the shortest sources
    assert largest_error(bundle, tmp_path / "luong", examples) < 2e-5


@pytest.mark.parametrize("changes", KINDS, ids=str)
@torch.inference_mode()
def test_attention_is_that_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("luong", tmp_path, Precision.FP32, **changes)
    examples = examples_of("luong", (9, 4), num_steps=14)
    rows = GraphRows(open_bundle(bundle), examples.sources, wants_attention=True)
    module: Any = load_module(load_checkpoint(tmp_path / "luong"))
    seen: list[np.ndarray] = []
    module.attention.register_forward_hook(lambda *call: seen.append(call[-1][1][0, 0].numpy()))
    states = [
        module.encode(torch.tensor([source]), torch.tensor([len(source)]))
        for source in examples.sources
    ]
    for column in zip(*examples.targets, strict=True):
        rows.read([[token_id] for token_id in column])
        for row, token_id in enumerate(column):
            _, states[row] = module.step(torch.tensor([token_id]), states[row])
            actual, expected = rows.outputs["attention"][row, 0], seen.pop()
            np.testing.assert_allclose(actual[: len(expected)], expected, rtol=1e-4, atol=1e-6)
            assert not actual[len(expected) :].any()
