"""Training and decoding on another device than the CPU: nothing is left behind there."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from models.architectures.registry import parse_config
from models.batch import IGNORED_LABEL, TargetBatch
from models.configs.base import LanguageModelConfig
from models.data.batching import Dataset, ParallelData, ProseData
from models.data.corpus import SentencePair
from models.decoding import (
    BeamRules,
    beam_search,
    continue_batch,
    greedy,
    teacher_forced_log_probabilities,
    translate_all,
)
from models.loading import build
from models.training.config import OptimizerConfig, TrainingConfig, read_config
from models.training.learning import SmoothedCrossEntropy
from models.training.optimizer import Arithmetic, Optimizer
from models.training.trainer import Trainer
from models.training.validation import validate
from tests.devices.other_device import other_device
from tests.grid import full
from tests.models.training.toy_run import write_config, write_data
from tests.tiny import CONFIGS, DECODERS, LIKE_GEMMA, LIKE_PHI, byte_tokenizer

ARCHITECTURES = ["transformer", "bahdanau", "luong", "llama", "mamba"]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((architecture, {}) for architecture in DECODERS if architecture not in ARCHITECTURES),
    (
        "luong",
        {"attention": {"kind": "local-m", "window": 2}, "score": "concat", "input_feeding": False},
    ),
    (
        "luong",
        {
            "attention": {"kind": "local-p", "window": 2},
            "num_layers": 2,
            "imported": {"bidirectional": True, "bridge": "relu"},
        },
    ),
    ("transformer", {"num_kv_heads": 1, "positions": {"kind": "relative"}}),
    ("transformer", {"tied_embeddings": False, "positions": {"kind": "learned"}}),
    ("lstmn", {"fusion": "shallow"}),
    ("gpt2", {"window": 3}),
    ("gpt-neox", LIKE_PHI),
    ("llama", LIKE_GEMMA),
]
TEXTS = ["one cat", "two dogs and a cat", "three"]
FP32 = Arithmetic(torch.device("cpu"), torch.float32, "a test wants it")


@pytest.fixture
def elsewhere() -> Iterator[torch.device]:
    with other_device() as device:
        yield device


def test_the_device_of_these_tests_refuses_what_is_not_on_it(elsewhere: torch.device) -> None:
    table = nn.Embedding(5, 3).to(elsewhere)
    with pytest.raises(RuntimeError, match="embedding got a tensor of the CPU"):
        table(torch.tensor([1, 2]))
    assert table(torch.tensor([1, 2], device=elsewhere)).device == elsewhere
    with torch.inference_mode(), pytest.raises(RuntimeError, match="index got a tensor of the CPU"):
        table.weight[torch.tensor([1, 2])]


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [*((architecture, {}) for architecture in ARCHITECTURES), *full(VARIANTS)],
)
def test_learns_validates_and_decodes_as_on_the_cpu(
    architecture: str, changes: dict[str, Any]
) -> None:
    vocabulary = {"architecture": architecture, "vocab_size": 259}
    config = parse_config(vocabulary | CONFIGS[architecture] | changes)
    expected = everything(config, torch.device("cpu"))
    with other_device() as device:
        got = everything(config, device)
    assert got == expected, "the same processor does the same"


def everything(config: Any, device: torch.device) -> dict[str, Any]:
    """Run a fresh module on the device: two updates, then all that looks."""
    torch.manual_seed(0)
    module = build(config).to(device).train()
    optimizer = Optimizer(module, OptimizerConfig(name="muon"), torch.float32)
    data = examples(config)
    batch = data.batch(data.epoch(0, 0, 64)[0]).to(device)
    losses = []
    for _ in range(2):
        torch.manual_seed(1)
        losses.append(learn(module, optimizer, batch))
    return {"losses": losses} | look(module, data)


def learn(module: nn.Module, optimizer: Optimizer, batch: TargetBatch) -> float:
    real = batch.labels != IGNORED_LABEL
    logits = module.project(module(batch)[real])
    loss = SmoothedCrossEntropy.apply(logits, batch.labels[real], 0.1)
    loss.backward()
    optimizer.step(1.0)
    return float(loss.detach())


def look(module: nn.Module, data: Dataset) -> dict[str, Any]:
    """Validation, and every way of decoding."""
    is_prose = isinstance(module.config, LanguageModelConfig)
    tokenizer, ids = byte_tokenizer(), [[40, 41, 42], [43, 44, 45]]
    pairs = [] if is_prose else [SentencePair("toy", text, text) for text in TEXTS]
    validation = validate(module, tokenizer, data, pairs, 64)
    module.eval()
    decode = continue_batch if is_prose else partial(translate_all, batch_size=2)
    source, prompt = (None, ids[0]) if is_prose else (ids[0], [])
    beams = beam_search(module, source, prompt, BeamRules(3, 5))
    return {
        "dev loss": validation.loss,
        "bleu": validation.bleu,
        "greedy": decode(module, ids, 6),
        "naive": greedy(module, source, prompt, 4),
        "beams": [each.token_ids for each in beams],
        "log p": teacher_forced_log_probabilities(module, ids[0], ids[1]).mean().item(),
    }


def examples(config: Any) -> Dataset:
    ids = [[3 + byte for byte in text.encode()] for text in TEXTS]
    if isinstance(config, LanguageModelConfig):
        return ProseData(np.array([i for text in ids for i in text] * 5), 24, config)
    return ParallelData(ids, ids[::-1], np.ones(len(ids)), config)


@pytest.fixture
def config(tmp_path: Path) -> TrainingConfig:
    write_data(tmp_path)
    return read_config(write_config(tmp_path, steps=12))


@pytest.mark.parametrize("begins_there", [True, *full([False])])
def test_a_run_goes_on_on_another_device(
    config: TrainingConfig, tmp_path: Path, elsewhere: torch.device, begins_there: bool
) -> None:
    there = Arithmetic(elsewhere, torch.float32, "a test wants it")
    first, second = (there, FP32) if begins_there else (FP32, there)
    run = config.run.model_copy(update={"max_steps": 6})
    half = config.model_copy(update={"run": run})
    Trainer(half, tmp_path, tmp_path / "run", first).run()
    Trainer(config, tmp_path, tmp_path / "run", second).run()
    Trainer(half, tmp_path, tmp_path / "cpu", FP32).run()
    Trainer(config, tmp_path, tmp_path / "cpu", FP32).run()
    rows, expected = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("run", "cpu"))
    assert without_time(rows) == without_time(expected)


def without_time(rows: str) -> list[dict[str, Any]]:
    return [json.loads(row) | {"minutes": None} for row in rows.splitlines()]
