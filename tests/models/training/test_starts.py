"""A run may begin where a checkpoint ends. Targets are cut in one way: beams differ in text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from models.checkpoint import load_checkpoint
from models.cli import train
from models.data.bpe_dropout import VaryingData
from models.training.config import read_config
from models.training.prepare import prepare
from models.training.trainer import Trainer
from tests.models.training.toy_run import WORDS, write_config, write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_data(tmp_path)
    Trainer(read_config(write_config(tmp_path, steps=12)), tmp_path, tmp_path / "first").run()
    return tmp_path


def other_words(data: Path) -> None:
    """Change what there is to learn, so that fresh weights would come with another tokenizer."""
    lines = [f"toy\t{b} {a} {a}\t{y} {x} {x}" for a, x in WORDS for b, y in WORDS]
    (data / "train.tsv").write_text("\n".join(lines) + "\n")


def test_a_start_gives_weights_and_tokenizer(data: Path) -> None:
    other_words(data)
    config = read_config(write_config(data, steps=6))
    start = load_checkpoint(data / "first/checkpoint")
    fresh = Trainer(config, data, data / "fresh")
    trainer = Trainer(config, data, data / "second", start=start)
    assert fresh.data.tokenizer.to_str() != start.tokenizer
    assert trainer.data.tokenizer.to_str() == start.tokenizer
    assert "first/checkpoint" in trainer.opening
    for name, weight in trainer.module.state_dict().items():
        torch.testing.assert_close(weight, torch.tensor(start.weights[name]))
    trainer.run()
    ended = load_checkpoint(data / "second/checkpoint")
    assert any(
        not np.array_equal(weight, start.weights[name]) for name, weight in ended.weights.items()
    )


def test_what_goes_on_keeps_its_own_weights_and_tokenizer(data: Path) -> None:
    other_words(data)
    config = read_config(write_config(data, steps=6))
    first = Trainer(config, data, data / "second")
    first.run()
    again = Trainer(config, data, data / "second", start=load_checkpoint(data / "first/checkpoint"))
    assert again.progress.step == 6
    assert again.data.tokenizer.to_str() == first.data.tokenizer.to_str()
    for name, weight in again.module.state_dict().items():
        torch.testing.assert_close(weight, first.module.state_dict()[name])


def test_another_model_is_no_start(data: Path) -> None:
    path = write_config(data, steps=6)
    path.write_text(path.read_text().replace("hidden_dim = 16", "hidden_dim = 8"))
    arguments = [str(path), "--data", str(data), "-o", str(data / "second")]
    start = ["--start", str(data / "first/checkpoint")]
    result = CliRunner().invoke(train, [*arguments, *start])
    assert result.exit_code == 2, result.output
    assert "hidden_dim is 16, in the recipe 8" in result.output
    result = CliRunner().invoke(train, [*arguments, "--start", str(data)])
    assert result.exit_code == 2, result.output
    assert "config.json is missing" in result.output


def test_dropout_cuts_sources_alone(data: Path) -> None:
    path = write_config(data, steps=6)
    path.write_text(path.read_text().replace("[optimizer]", "bpe_dropout = 0.5\n[optimizer]"))
    train = prepare(read_config(path), data, data / "tokenizer.json").train
    assert isinstance(train, VaryingData)
    batches = [train.batch(np.arange(start, start + 25)) for start in (0, 25)]
    assert not np.array_equal(*(batch.source_ids.numpy() for batch in batches))
    assert np.array_equal(*(batch.labels.numpy() for batch in batches))  # the same lines again
