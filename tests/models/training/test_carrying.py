"""Windows that carry their state read a text as one piece does; runs of them can be killed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.architectures.registry import parse_config
from models.batch import LanguageBatch
from models.checkpoint import load_checkpoint
from models.data.batching import CarriedProse
from models.loading import build
from models.training.config import TrainingConfigError, read_config
from models.training.learning import Carry
from models.training.trainer import Trainer
from tests.models.training.test_training import run_until
from tests.models.training.toy_run import WORDS

WINDOW, ROWS = 6, 3
FAMILIES: list[dict[str, Any]] = [
    {"architecture": "recurrent-lm", "cell": "lstm", "num_layers": 2},
    {"architecture": "recurrent-lm", "cell": "gru-reset-before"},
    {"architecture": "key-value-lm", "window": 4},
    {"architecture": "ngram-lm", "order": 3},
]
CONFIG = """
name = "carried"
[model]
architecture = "recurrent-lm"
cell = "lstm"
vocab_size = 300
embedding_dim = 8
hidden_dim = 8
context_length = 32
dropout = 0.0
[data]
train = ["prose.txt"]
held_out = 0.2
carried_window = 8
[run]
tokens_per_batch = 32
max_steps = 12
validations = 2
precision = "fp32"
"""


def module_of(**family: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "embedding_dim": 6, "hidden_dim": 12, "context_length": 32}
    return build(parse_config({**sizes, **family})).eval()


def data_of(num_tokens: int) -> CarriedProse:
    stream = np.random.default_rng(0).integers(3, 40, num_tokens)
    return CarriedProse(stream, WINDOW, module_of(**FAMILIES[0]).config)


def losses(module: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(module.project(hidden).transpose(1, 2), labels, reduction="none")


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@torch.inference_mode()
def test_losses_of_windows_are_those_of_a_text_in_one_piece(family: dict[str, Any]) -> None:
    module, data, carry = module_of(**family), data_of(100), Carry()
    batches = [data.batch(each) for each in data.epoch(0, 0, WINDOW * ROWS)]
    assert [batch.begins for batch in batches] == [True] + [False] * (len(batches) - 1)
    actual = [losses(module, carry.read(module, batch), batch.labels) for batch in batches]
    labels = torch.cat([batch.labels for batch in batches], 1)
    ids = torch.cat([torch.full((ROWS, 1), 1), labels[:, :-1]], 1)
    whole = losses(module, module(LanguageBatch(ids, labels)), labels)
    assert whole.shape[1] >= 4 * WINDOW
    torch.testing.assert_close(torch.cat(actual, 1), whole)


def test_gradients_end_where_a_window_begins() -> None:
    module, data, carry = module_of(**FAMILIES[0]), data_of(100), Carry()
    first, second = (data.batch(each) for each in data.epoch(0, 0, WINDOW * ROWS)[:2])
    reached = []
    module.embedding.register_forward_hook(lambda *call: reached.append(call[2]))
    carry.read(module, first)
    reached[0].retain_grad()
    carry.read(module, second).sum().backward()
    assert reached[0].grad is None


def test_rows_cover_the_stream_in_order_and_a_short_one_has_fewer() -> None:
    data = data_of(40)
    windows = [data.batch(each).labels for each in data.epoch(0, 1, WINDOW * ROWS)]
    for row, text in enumerate(torch.cat(windows, 1).tolist()):
        begin = data.epoch(0, 1, WINDOW * ROWS)[0][row, 0]
        assert text == data.stream[begin : begin + len(text)].tolist()
    assert len(data.batch(data.epoch(0, 0, 1000 * WINDOW)[0]).labels) <= 40 // WINDOW


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    words = [word for pair in WORDS for word in pair]
    documents = [" ".join(random.choice(words, 120)) for _ in range(6)]
    (tmp_path / "prose.txt").write_text("\n".join(documents))
    (tmp_path / "carried.toml").write_text(CONFIG)
    return tmp_path


def test_a_killed_run_goes_on_with_the_state_it_carried(folder: Path) -> None:
    config = read_config(folder / "carried.toml")
    Trainer(config, folder, folder / "whole").run()
    run_until(Trainer(config, folder, folder / "killed"), step=9)
    again = Trainer(config, folder, folder / "killed")
    assert again.progress.batch, "killed within an epoch"
    assert again.learner.carry.state_tensors()["cells.0.1"].any()
    again.run()
    whole, killed = (load_checkpoint(folder / n / "checkpoint") for n in ("whole", "killed"))
    for name, weight in whole.weights.items():
        torch.testing.assert_close(weight, killed.weights[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    ['"llama"', '"recurrent-lm", attention = { dim = 4 }'],
)
def test_what_grows_with_its_text_is_not_carried(tmp_path: Path, model: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f"""
        name = "x"
        model = {{ vocab_size = 300, architecture = {model} }}
        data = {{ train = ["x"], carried_window = 8 }}
    """)
    with pytest.raises(TrainingConfigError, match=r"carried_window: .* keeps more of a text"):
        read_config(path)
