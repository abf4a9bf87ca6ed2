"""Configurations and checkpoints: what is wrong is said, all of it."""

import json
import math
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from export.cli import export
from models.architectures.bahdanau.config import BahdanauConfig
from models.architectures.llama.config import LlamaConfig
from models.architectures.registry import (
    ARCHITECTURES,
    ModelConfigError,
    config_class,
    parse_config,
)
from models.architectures.transformer.config import TransformerConfig
from models.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.safetensors import Storage
from models.training.config import TrainingConfigError, read_config
from tests.tiny import tiny_checkpoint


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path) -> None:
    config = LlamaConfig(vocab_size=50)
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_checkpoint(tmp_path, config, weights, "{}", Storage.FP16)
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
        (lambda: BahdanauConfig(vocab_size=9, max_target_tokens=1), "max_target_tokens"),
        (lambda: LlamaConfig(vocab_size=9, context_length=1), "context_length"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()


WRONG: list[tuple[dict[Any, Any], list[str]]] = [
    ({}, ["architecture: is required, one of bahdanau, "]),
    ({"architecture": None}, ["architecture: must be one of bahdanau, "]),
    ({"architecture": ["transformer"]}, ["(got ['transformer']); did you mean transformer?"]),
    ({"architecture": "Tranformer"}, ["(got 'Tranformer'); did you mean transformer?"]),
    ({"architecture": "x" * 9999}, ["(got 'xxxxxxxxxxxx...xxxxxxxxxxxxx')"]),
    (
        {"architecture": "bahdanau", "d_model": 8, "hidden_dims": 3, "colour": {"a": [1]}},
        [
            "vocab_size: is required",
            "d_model: bahdanau has no such option; gpt-neox, gpt2, llama, mamba, mamba2, r",
            "hidden_dims: bahdanau has no such option; did you mean hidden_dim?",
            "colour: bahdanau has no such option",
        ],
    ),
    (
        {"architecture": "convs2s", "vocab_size": 9, "attention": "local-m"},
        ["attention: convs2s has no such option; luong, recurrent-lm have it"],
    ),
    (
        {"architecture": "bahdanau", "vocab_size": 9, "kernel_size\n" * 9: 1, 5: 1},
        ["'kernel_size\\...kern", "5: keys should be strings (got 5)"],
    ),
    (
        {
            "architecture": "llama",
            "vocab_size": True,
            "d_model": "256",
            "num_layers": 2.0,
            "ffn_dim": 10**30,
            "dropout": None,
            "tied_embeddings": 1,
            "rope_theta": math.nan,
            "languages": ["en", 3, None],
            "context_length": [8],
        },
        [
            "dropout: input should be a valid number (got None)",
            "vocab_size: input should be a valid integer (got True)",
            "d_model: input should be a valid integer (got '256')",
            "num_layers: input should be a valid integer (got 2.0)",
            "ffn_dim: input should be less than 2147483648 (got 1000000000000000000000000000000)",
            "tied_embeddings: input should be a valid boolean (got 1)",
            "rope_theta: input should be a finite number (got nan)",
            "languages.1: input should be a valid string (got 3)",
            "context_length: input should be a valid integer (got [8])",
        ],
    ),
    (
        {"architecture": "transformer", "vocab_size": 9, "source_languages": "en", "d_model": 31},
        [
            "source_languages: input should be a valid list (got 'en')",
            "d_model 31 must be a multiple of num_heads 4",
        ],
    ),
    (
        {"architecture": "llama", "vocab_size": 9, "d_model": 30, "num_heads": "4"},
        ["num_heads: input should be a valid integer (got '4')"],
    ),
    (
        {"architecture": "llama", "vocab_size": 9, "d_model": 30, "num_kv_heads": 3},
        [
            "d_model 30 must be a multiple of num_heads 4",
            "num_heads 4 must be a multiple of num_kv",
        ],
    ),
    (
        {"architecture": "bahdanau", "vocab_size": 9, "pad_id": 9, "eos_id": -1, "readout_dim": 7},
        [
            "eos_id: input should be greater than or equal to 0 (got -1)",
            "pad_id 9 must be less than vocab_size 9",
            "readout_dim 7",
        ],
    ),
    (
        {"architecture": "llama", "vocab_size": 9, "task": "translate"},
        ["task: input should be 'ge"],
    ),
]


@pytest.mark.parametrize(("values", "problems"), WRONG)
def test_each_problem_is_said_once(values: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config(values)
    actual = sorted(caught.value.problems)
    assert len(actual) == len(problems), actual
    for problem in problems:
        assert sum(problem in each for each in actual) == 1, actual


@pytest.mark.parametrize("values", [None, [], "transformer", 3, [["architecture", "llama"]]])
def test_what_is_no_object_is_refused(values: Any) -> None:
    with pytest.raises(ModelConfigError, match="expected an object, found"):
        parse_config(values)


VALUES: list[Any] = [None, True, 0, -1, 3, 1.5, 10**400, 2**31, math.nan, math.inf, "", "8", "lstm"]
VALUES += [[], ["x"], [["x"]], {}, {"a": None}, "\ud800", "local-m"]
VALUES += [{"kind": None}, {"kind": []}, {"kind": "rms"}, {"kind": "relative"}, {"kind": "x" * 999}]
VALUES += [{"kind": "relative", "num_buckets": 2**70}, {"kind": "local-p", "window": 2}]


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_no_value_of_any_field_breaks_the_reader(architecture: str) -> None:
    """Expect what is accepted to be accepted again as it is written to disk."""
    fields = [name for name in config_class(architecture).model_fields if name != "architecture"]
    right = {"architecture": architecture, "vocab_size": 50}
    cases = [{**right, field: value} for field in fields for value in VALUES]
    cases += [{**right, **dict.fromkeys(fields, value)} for value in VALUES]
    num_refused = 0
    for values in cases:
        try:
            config = parse_config(values)
        except ModelConfigError as error:
            num_refused += 1
            assert error.problems and all(error.problems)
        else:
            assert parse_config(json.loads(config.model_dump_json())) == config
    assert num_refused > len(cases) / 2


@pytest.mark.parametrize("text", ["{", "9" * 5000, "[" * 100_000, "\xff", '"llama"', ""])
def test_what_is_no_configuration_is_a_problem_of_its_file(tmp_path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert [problem.split(" ")[0].strip(":") for problem in caught.value.problems] == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_exporting_lists_the_same_problems(tmp_path) -> None:
    folder = tiny_checkpoint("transformer", tmp_path / "mine").folder
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"d_model": 30, "ffn_dim": 0, "window": 3, "dropout": "much"}
    (folder / "config.json").write_text(json.dumps(settings))
    result = CliRunner().invoke(export, [str(folder), "-o", str(tmp_path / "out")])
    with pytest.raises(ModelConfigError) as caught:
        parse_config(settings)
    assert result.exit_code == 2
    lines = [f"  config.json: {problem}" for problem in caught.value.problems]
    assert result.stderr.splitlines()[-len(lines) :] == lines
    assert len(lines) == 4


def test_what_reads_pictures_is_not_trained(tmp_path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("""
        name = "x"
        model = { vocab_size = 300, architecture = "vision-transformer" }
        data = { train = ["x"] }
    """)
    with pytest.raises(TrainingConfigError, match="vision-transformer reads pictures"):
        read_config(path)


def test_all_problems_of_a_training_configuration_are_listed(tmp_path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "x"\n[model]\narchitecture = "llama"\nvocab_size = 0\n'
        '[data]\ntrain = ["a"]\n[run]\nmax_minutes = -1\nspeed = 3\n'
    )
    with pytest.raises(TrainingConfigError) as caught:
        read_config(path)
    text = "\n".join(caught.value.problems)
    for word in ("vocab_size", "max_minutes", "speed"):
        assert word in text
