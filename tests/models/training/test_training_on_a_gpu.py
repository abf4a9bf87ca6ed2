"""Tests what training does on a GPU alone, as far as a CPU can try it: the same numbers in other
ways.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from models.architectures.llama.module import LlamaAttention
from models.architectures.registry import parse_config
from models.data.batching import ParallelData
from models.layers.attention import Attention
from models.loading import build
from models.training import learning, optimizer
from models.training.config import OptimizerConfig
from models.training.learning import (
    BUILT_AHEAD,
    BatchLoader,
    Learner,
    SmoothedCrossEntropy,
    TrainingBatch,
    compile_where_it_pays,
    is_transformer,
    training_batch,
)
from models.training.optimizer import Arithmetic, Muon, Optimizer, orthogonalise, stacks
from tests.grid import full
from tests.models.training.test_devices import FP32, examples
from tests.tiny import CONFIGS, LIKE_GEMMA, LIKE_GPT_OSS

TRANSFORMERS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {"dropout": 0.0}),
    ("transformer", {"dropout": 0.0, "num_kv_heads": 1, "positions": {"kind": "relative"}}),
    ("transformer-ssru", {"dropout": 0.0}),
    ("llama", {"window": 5}),
    ("gpt-neox", {}),
]
GPU = Arithmetic(torch.device("cuda"), torch.bfloat16, "a test wants it")


def module_of(architecture: str, changes: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"architecture": architecture, "vocab_size": 259}
    return build(parse_config(sizes | CONFIGS[architecture] | changes)).train()


def make_batches(module: nn.Module) -> list[TrainingBatch]:
    data = examples(module.config)
    return [training_batch(data.batch(indices)) for indices in data.epoch(0, 0, 64)]


def gradients(module: nn.Module, given: TrainingBatch) -> list[torch.Tensor]:
    hidden = module(given.batch).flatten(0, 1)[given.places]
    SmoothedCrossEntropy.apply(module.project(hidden), given.labels, 0.1).backward()
    actual = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad()
    return actual


@pytest.mark.parametrize(("architecture", "changes"), TRANSFORMERS)
def test_fused_attention_is_the_one_that_is_written_out(
    architecture: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(architecture, changes)
    given = make_batches(module)[0]
    expected = gradients(module, given)
    monkeypatch.setattr(Attention, "is_fused", lambda self, query: True)
    monkeypatch.setattr(Attention, "scores", None)
    monkeypatch.setattr(LlamaAttention, "is_fused", lambda self, query: True)
    torch.testing.assert_close(gradients(module, given), expected, rtol=1e-4, atol=1e-6)


def test_capped_scores_and_sinks_are_never_fused() -> None:
    query: Any = SimpleNamespace(is_cuda=True)
    for changes, is_fused in ({}, True), (LIKE_GEMMA, False), (LIKE_GPT_OSS, False):
        attention = module_of("llama", changes).layers[0].attention
        assert attention.is_fused(query) == is_fused


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_loss_is_the_same_in_slices_of_any_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(150, 37, requires_grad=True), torch.randint(0, 37, (150,))
    expected = SmoothedCrossEntropy.apply(logits, labels, 0.1)
    (gradient,) = torch.autograd.grad(expected, logits)
    monkeypatch.setattr(learning, "rows_per_slice", lambda logits: size)
    actual = SmoothedCrossEntropy.apply(logits, labels, 0.1)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(actual, logits)[0], gradient)


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_matrices_are_made_orthogonal_together_as_they_are_alone(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(5, *shape)
    matrices[3] *= 1e-3
    alone = torch.stack([orthogonalise(each) for each in matrices])
    torch.testing.assert_close(orthogonalise(matrices), alone, rtol=1e-4, atol=1e-5)


def test_muon_over_stacks_updates_as_matrix_by_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(24, 10), (10, 24), (24, 10), (16, 16), (24, 10)]
    sides = [[nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2)]
    optimizers = [Muon(side, 0.02, 0.1, torch.float32) for side in sides]
    torch.manual_seed(0)
    for _ in range(3):
        for one, two in zip(*sides, strict=True):
            one.grad = torch.randn(one.shape)
            two.grad = one.grad.clone()
        optimizers[0].step()
        with monkeypatch.context() as patch:
            patch.setattr(optimizer, "stacks", by_shape)
            optimizers[1].step()
    torch.testing.assert_close(sides[1], sides[0], rtol=1e-4, atol=1e-6)
    state = optimizers[1].state_dict()["state"]
    assert [tuple(state[i]["momentum_buffer"].shape) for i in range(5)] == shapes


def by_shape(matrices: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    shapes = dict.fromkeys(matrix.shape for matrix in matrices)
    return [[each for each in matrices if each.shape == shape] for shape in shapes]


def test_on_a_cpu_every_matrix_is_updated_alone() -> None:
    matrices = [nn.Parameter(torch.ones(3, 3)) for _ in range(4)]
    assert [len(stack) for stack in stacks(matrices)] == [1, 1, 1, 1]


class Counted(ParallelData):
    """Data that counts the batches that were built."""

    built = 0

    def batch(self, indices: np.ndarray) -> Any:
        Counted.built += 1
        return super().batch(indices)


@pytest.fixture
def data() -> Iterator[Counted]:
    Counted.built = 0
    config = parse_config({"architecture": "bahdanau", "vocab_size": 259} | CONFIGS["bahdanau"])
    ids = [[3 + i, 4 + i, 5] for i in range(40)]
    yield Counted(ids, ids, np.ones(len(ids)), config)


def test_batches_built_ahead_are_those_built_in_turn(data: Counted) -> None:
    epoch = data.epoch(0, 0, 16)
    sides = [
        [
            each.labels.tolist()
            for each in BatchLoader(data, FP32.device, builds_ahead=ahead).batches(epoch)
        ]
        for ahead in (False, True)
    ]
    assert len(sides[0]) == len(epoch) > BUILT_AHEAD
    assert sides[0] == sides[1]


def test_no_more_are_built_ahead_than_there_is_room_for(data: Counted) -> None:
    batches = BatchLoader(data, FP32.device, builds_ahead=True).batches(data.epoch(0, 0, 8))
    next(batches)
    batches.close()
    assert BUILT_AHEAD <= Counted.built <= BUILT_AHEAD + 1


def test_a_batch_that_cannot_be_built_is_an_error_of_the_run(data: Counted) -> None:
    batches = BatchLoader(data, FP32.device, builds_ahead=True).batches([np.array([10_000])])
    with pytest.raises(IndexError):
        next(batches)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {"num_layers": 1}),
        *full([("transformer", {"encoder_layers": 1, "decoder_layers": 1})]),
    ],
)
def test_a_transformer_is_one_graph_to_torch_s_compiler(
    architecture: str, changes: dict[str, Any]
) -> None:
    """Without a break, for batches of several shapes (those of one row have a graph of their own);
    what is made of the graph is torch's.
    """
    losses, seen = [], []

    def see(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph

    for is_compiled in (False, True):
        module = module_of(architecture, changes | {"dropout": 0.0})
        if is_compiled:
            module.compile(dynamic=True, fullgraph=True, backend=see)
        optimizer = Optimizer(module, OptimizerConfig(name="muon"), torch.float32)
        learner = Learner(module, optimizer, FP32, 0.1)
        losses.append([float(learner.learn(each, 1.0)) for each in make_batches(module)])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    assert 1 <= len(seen) <= 2


def test_transformers_alone_are_compiled_and_on_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "can_compile", lambda: True)
    compiled: list[nn.Module] = []

    def note(module: nn.Module, **options: Any) -> None:
        compiled.append(module)

    monkeypatch.setattr(nn.Module, "compile", note)
    modules = [module_of(name, {}) for name in ("transformer", "llama", "bahdanau", "lstmn")]
    for module in modules:
        compile_where_it_pays(module, FP32)
        compile_where_it_pays(module, GPU)
    assert compiled == modules[:2]
    assert not is_transformer(module_of("transformer-ssru", {}).config)
    monkeypatch.setattr(learning, "can_compile", lambda: False)
    compile_where_it_pays(modules[0], GPU)
    assert compiled == modules[:2]
