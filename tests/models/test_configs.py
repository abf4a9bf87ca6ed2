"""Configurations and checkpoints: what is wrong is said, all of it."""

import json

import numpy as np
import pytest
from pydantic import ValidationError

from models.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.configs.bahdanau import BahdanauConfig
from models.configs.llama import LlamaConfig
from models.configs.transformer import TransformerConfig
from models.training.config import ConfigError, read_config


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path) -> None:
    config = LlamaConfig(vocab_size=50)
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_checkpoint(tmp_path, config, weights, "{}", dtype=np.float16)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.config == config
    assert checkpoint.weights["a"].dtype == np.float32
    assert np.array_equal(checkpoint.weights["a"], weights["a"])


def test_everything_wrong_with_a_checkpoint_is_listed(tmp_path) -> None:
    settings = {"architecture": "transformer", "vocab_size": -1, "colour": "red"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    for word in ("vocab_size", "colour", "model.safetensors", "tokenizer.json"):
        assert word in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransformerConfig(vocab_size=9, d_model=30, num_heads=4), "multiple of num_heads"),
        (lambda: LlamaConfig(vocab_size=9, num_heads=4, num_kv_heads=3), "num_kv_heads 3"),
        (lambda: BahdanauConfig(vocab_size=9, readout_dim=7), "readout_dim 7"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()


def test_all_problems_of_a_training_configuration_are_listed(tmp_path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "x"\n[model]\narchitecture = "llama"\nvocab_size = 0\n'
        '[data]\ntrain = ["a"]\n[run]\nmax_minutes = -1\nspeed = 3\n'
    )
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    text = "\n".join(caught.value.problems)
    for word in ("vocab_size", "max_minutes", "speed"):
        assert word in text
