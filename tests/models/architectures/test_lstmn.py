"""The LSTMN computes the paper's equations: plain float64 loops over words, equal weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.architectures.lstmn.config import LstmnConfig
from models.architectures.lstmn.module import Lstmn
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import TranslationBatch
from models.checkpoint import load_checkpoint
from models.decoding import greedy, translate_batch
from models.loading import load_module
from serving.bundle.manifest import Precision, StateKind
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

Array = np.ndarray
SIZES: dict[str, Any] = {
    "vocab_size": 30,
    "embedding_dim": 4,
    "hidden_dim": 6,
    "attention_dim": 5,
    "readout_dim": 4,
    "max_source_tokens": 16,
    "max_target_tokens": 16,
}
FUSIONS = ["shallow", "deep"]
SOURCE, TARGET = [3, 9, 4, 12, 25, 2], [1, 7, 7, 20, 3, 11, 5, 29]


def fresh(**changes: Any) -> Lstmn:
    torch.manual_seed(0)
    module = Lstmn(LstmnConfig(**SIZES | changes)).eval()
    for parameter in module.parameters():  # sharper than fresh weights, so that attention matters
        torch.nn.init.normal_(parameter, std=0.7)
    return module


class Loops:
    """The paper's equations for one sentence; weights by state-dict name."""

    def __init__(self, module: Lstmn) -> None:
        self.config = module.config
        self.weights = {name: w.numpy() for name, w in module.state_dict().items()}
        self.zeros = np.zeros(self.config.hidden_dim)

    def times(self, name: str, x: Array) -> Array:
        """The layer of that name, with its bias where it has one."""
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0)

    def weigh(self, name: str, query: Array, hiddens: list[Array]) -> list[float]:
        """s_i, softmax of a_i = v . tanh(W_h h_i + query) (4, 5)."""
        v = self.weights[f"{name}.score.weight"][0]
        scores = [v @ np.tanh(self.times(f"{name}.key", h) + query) for h in hiddens]
        likelihoods = np.exp(np.array(scores))
        return list(likelihoods / likelihoods.sum())

    def mixed(self, weights: list[float], vectors: list[Array]) -> Array:
        """The sum of (6); nothing where there is nothing yet."""
        parts = (w * each for w, each in zip(weights, vectors, strict=True))
        return sum(parts, start=self.zeros)

    def encode(self, source: list[int]) -> tuple[list[Array], list[Array]]:
        """Hidden and memory tape."""
        hiddens: list[Array] = []
        memories: list[Array] = []
        recalled = self.zeros
        for word in source:
            x = self.weights["embedding.weight"][word] * 2
            h, c, recalled = self.step("encoder", x, hiddens, memories, recalled, 0, 0)
            hiddens.append(h)
            memories.append(c)
        return hiddens, memories

    def decode(self, target: list[int], source: tuple[list[Array], list[Array]]) -> Array:
        """Readouts of every target word."""
        hiddens: list[Array] = []
        memories: list[Array] = []
        recalled = context = h = self.zeros
        readouts = []
        for word in target:
            x = self.weights["embedding.weight"][word] * 2
            to_gates = to_memory = np.zeros(1)
            if self.config.fusion == "deep":
                context, to_memory = self.deep(x, context, *source)
            else:
                weights = self.weigh("fusion.attention", self.times("fusion.query", h), source[0])
                context = self.mixed(weights, source[0])
                to_gates = self.times("fusion.gates", context)
            state = (hiddens, memories, recalled)
            h, c, recalled = self.step("decoder", x, *state, to_gates, to_memory)
            hiddens.append(h)
            memories.append(c)
            readouts.append(np.tanh(self.times("readout", np.concatenate([context, h]))))
        return np.stack(readouts)

    def deep(self, x: Array, context: Array, hiddens: list, memories: list) -> tuple[Array, Array]:
        """gamma~_t and r_t alpha~_t (11-15)."""
        query = self.times("fusion.query_input", x) + self.times("fusion.query_context", context)
        weights = self.weigh("fusion.attention", query, hiddens)
        context, memory = self.mixed(weights, hiddens), self.mixed(weights, memories)
        gate = self.times("fusion.gate_input", x) + self.times("fusion.gate_context", context)
        return context, sigmoid(gate) * memory

    def step(
        self, name: str, x: Array, hiddens: list, memories: list, recalled: Array, *added: Any
    ) -> tuple[Array, Array, Array]:
        """h_t, c_t and h~_t (4-9); `added` is what else enters the gates, and c_t."""
        query = self.times(f"{name}.query_input", x)
        query = query + self.times(f"{name}.query_recalled", recalled)
        weights = self.weigh(f"{name}.attention", query, hiddens)
        recalled, c = self.mixed(weights, hiddens), self.mixed(weights, memories)
        gates = self.times(f"{name}.gates_input", x) + self.times(
            f"{name}.gates_recalled", recalled
        )
        enter, keep, new, leave = np.split(gates + added[0], 4)
        c = sigmoid(keep) * c + sigmoid(enter) * np.tanh(new) + added[1]
        return sigmoid(leave) * np.tanh(c), c, recalled


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("fusion", FUSIONS)
@torch.inference_mode()
def test_the_whole_model_equals_its_equations(fusion: str) -> None:
    module = fresh(fusion=fusion).double()
    loops, ids = Loops(module), torch.tensor([TARGET])
    source, lengths = torch.tensor([SOURCE]), torch.tensor([len(SOURCE)])
    actual = module(TranslationBatch(ids, ids, source, lengths))
    expected = loops.decode(TARGET, loops.encode(SOURCE))
    np.testing.assert_allclose(actual[0].numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("fusion", FUSIONS)
@torch.inference_mode()
def test_steps_equal_the_whole_sequence_whatever_the_padding(fusion: str) -> None:
    module = fresh(fusion=fusion)
    source, lengths = torch.randint(3, 30, (3, 9)), torch.tensor([9, 4, 1])
    target = torch.randint(3, 30, (3, 12))
    whole = module(TranslationBatch(target, target, source, lengths))
    for row, length in enumerate(lengths):
        state = module.encode(source[row : row + 1, :length], lengths[row : row + 1])
        for position in range(12):
            actual, state = module.step(target[row : row + 1, position], state)
            torch.testing.assert_close(actual[0], whole[row, position], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_the_batched_loop_equals_one_sentence_at_a_time(fusion: str) -> None:
    module = fresh(fusion=fusion)
    sources = [torch.randint(3, 30, (n,)).tolist() for n in (1, 5, 9)]
    assert translate_batch(module, sources, 12) == [
        greedy(module, source, [], 12) for source in sources
    ]


def test_options_that_do_not_fit_are_all_told() -> None:
    changes = {"cell": "gru", "fusion": "flat", "readout_dim": 5, "window": 3}
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": "lstmn", **SIZES, **changes})
    actual = sorted(caught.value.problems)
    expected = ["cell: ", "fusion: ", "tied_embeddings needs readout_dim 5", "window: lstmn has no"]
    assert len(actual) == len(expected)
    assert all(f.startswith(e) for f, e in zip(actual, expected, strict=True)), actual


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
    rows = GraphRows(open_bundle(bundle), [source], wants_attention=True)
    module: Any = load_module(load_checkpoint(tmp_path / "lstmn"))
    state = module.encode(torch.tensor([source]), torch.tensor([len(source)]))
    for token_id in target:
        inputs = module.fusion.project(module.embed(torch.tensor([token_id])))
        *_, expected = module.fusion(inputs, state)
        _, state = module.step(torch.tensor([token_id]), state)
        rows.read([[token_id]])
        actual = rows.outputs["attention"][0, 0]
        np.testing.assert_allclose(actual[: len(source)], expected[0], rtol=1e-4, atol=1e-6)
        assert not actual[len(source) :].any()


def test_its_tape_is_an_append_state(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("lstmn", tmp_path, Precision.FP32))
    kinds = {state.name: state.kind for state in bundle.manifest.states}
    assert kinds["tape_keys"] is kinds["tape_values"] is StateKind.APPEND
