"""Folders of models that read pictures: the language model in them is read."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig

from export.readers.hugging_face.families import read
from export.readers.hugging_face.multimodal import MULTIMODAL
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import random_model, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(random_model("gemma3 that reads pictures"), tmp_path)


def test_what_is_left_out_is_named(folder: Path) -> None:
    [note] = read(folder).notes
    left_out = [name for name in load_file(folder / "model.safetensors") if "language" not in name]
    assert f"pictures is left out: {len(left_out)} tensors" in note
    assert "vision_config" in note and "image_token_index" in note


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_what_text_configs_leave_out_is_theirs(kind: str) -> None:
    theirs = AutoConfig.for_model(kind).text_config.to_dict()
    assert {name: theirs[name] for name in MULTIMODAL[kind]} == MULTIMODAL[kind]


def test_weights_have_the_names_of_any_release(folder: Path) -> None:
    """`transformers` 4.52 to 4.56 wrote other names than those before and after."""
    expected = read(folder).weights
    file = folder / "model.safetensors"
    renamed = {
        f"model.{name}".replace("language_model.model.", "language_model."): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(renamed, file, {"format": "pt"})
    found = read(folder).weights
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_every_end_of_the_whole_model_counts(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", eos_token_id=[2, 7])
    assert read(folder).conventions.stop == (2, 7)


def test_the_template_of_older_folders_is_read(folder: Path) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert read(folder).conventions.chat_template == "{{ messages }}"


def test_problems_of_text_config_are_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", text_config=config["text_config"] | {"hidden_size": "x"})
    assert "hidden_size 'x' must be int" in "; ".join(problems_of(folder))
    change(folder / "config.json", text_config=[])
    assert "text_config [] must be dict" in "; ".join(problems_of(folder))
