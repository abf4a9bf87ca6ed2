"""Tests that what never ends, or is larger than it can be, is not read."""

import os
from pathlib import Path

import pytest

from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from models.files import MOST_CONFIG_BYTES, read_text


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("señor\n", encoding="utf-8")
    assert read_text(tmp_path / "words.txt") == "señor\n"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "huge"])
def test_what_is_no_plain_file_is_a_problem(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    path = tmp_path / name
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "huge":
            path.touch()
            os.truncate(path, MOST_CONFIG_BYTES + 1)  # a hole, which takes no space
    with pytest.raises(CheckpointError) as refused:
        read_model(tmp_path)
    reason = "it is larger than 4 MiB" if kind == "huge" else "it is no regular file"
    told = f"{name} cannot be read: {reason}"
    assert told in refused.value.problems or "none of the known formats" in str(refused.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["model.bin", "model.npz", "model.pt", "model.gguf"])
def test_pipes_are_no_models(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(CheckpointError):
            read_model(source)
