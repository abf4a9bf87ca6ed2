"""Folders of models that read pictures: the language model in them is read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText

from export.readers.hugging_face.families import read_checkpoint
from export.readers.hugging_face.multimodal import MULTIMODAL
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import (
    FAMILIES,
    log_probabilities,
    random_model,
    save,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(random_model("gemma3 that reads pictures"), tmp_path)


def test_what_is_left_out_is_named(folder: Path) -> None:
    [note] = read_checkpoint(folder).notes
    left_out = [name for name in load_file(folder / "model.safetensors") if "language" not in name]
    assert f"pictures is left out: {len(left_out)} tensors" in note
    assert "vision_config" in note and "image_token_index" in note


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_what_text_configs_leave_out_is_theirs(kind: str) -> None:
    theirs = AutoConfig.for_model(kind).text_config.to_dict()
    assert {name: theirs[name] for name in MULTIMODAL[kind]} == MULTIMODAL[kind]


def test_weights_have_the_names_of_any_release(folder: Path) -> None:
    """`transformers` 4.52 to 4.56 wrote other names than those before and after."""
    expected = read_checkpoint(folder).weights
    file = folder / "model.safetensors"
    renamed = {
        f"model.{name}".replace("language_model.model.", "language_model."): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(renamed, file, {"format": "pt"})
    found = read_checkpoint(folder).weights
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


VISION = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "head_dim": 8}
VISION |= {"num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
MISTRAL3 = {  # Ministral 3 of 3 and of 8 billion weights
    "small": {"model_type": "ministral3", **FAMILIES["ministral3"], "tie_word_embeddings": True},
    "large": {"model_type": "ministral3", **FAMILIES["ministral3"]},
}


@pytest.mark.parametrize("name", MISTRAL3)
def test_ministral_3(name: str, tmp_path: Path) -> None:
    is_tied = "tie_word_embeddings" in MISTRAL3[name]
    sections = {"text_config": MISTRAL3[name], "vision_config": VISION}
    config = AutoConfig.for_model("mistral3", **sections, tie_word_embeddings=is_tied)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    save(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    written.pop("tie_word_embeddings")
    (tmp_path / "config.json").write_text(json.dumps(written | sections))

    module, ids = load_module(read_checkpoint(tmp_path)), [1, *range(40, 60)]

    found = teacher_forced_log_probabilities(module, [], ids).numpy()
    assert np.abs(found - log_probabilities(model, ids)).max() < 1e-4


def test_every_end_of_the_whole_model_counts(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", eos_token_id=[2, 7])
    assert read_checkpoint(folder).conventions.stop == (2, 7)


def test_the_template_of_older_folders_is_read(folder: Path) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert read_checkpoint(folder).conventions.chat_template == "{{ messages }}"


def test_problems_of_text_config_are_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", text_config=config["text_config"] | {"hidden_size": "x"})
    assert "hidden_size 'x' must be int" in "; ".join(problems_of(folder))
    change(folder / "config.json", text_config=[])
    assert "text_config [] must be dict" in "; ".join(problems_of(folder))
