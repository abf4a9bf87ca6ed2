"""What a checkpoint is called; words that cannot be read."""

from dataclasses import replace
from pathlib import Path

import pytest

from models.checkpoint import CheckpointError, load_checkpoint, write_words
from tests.tiny import tiny_checkpoint


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("all-MiniLM-L6-v2/model", "all-MiniLM-L6-v2"),
        (f"models--Helsinki-NLP--opus-mt-en-fr/snapshots/{'a' * 40}", "opus-mt-en-fr"),
        ("runs/luong/checkpoint", "luong"),
        ("enpt-1693087644", "enpt"),
        ("my--model", "my--model"),
        ("SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1"),
        ("opus/model.npz", "opus"),
    ],
)
def test_the_name_is_that_of_the_first_place_that_says_something(
    place: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / place
    if path.suffix in (".gguf", ".npz"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    else:
        path.mkdir(parents=True)
    checkpoint = tiny_checkpoint("luong", tmp_path / "luong")
    assert replace(checkpoint, folder=path).name == name


def test_words_that_cannot_be_decompressed_are_a_problem(tmp_path: Path) -> None:
    folder = tiny_checkpoint("transformer", tmp_path).folder
    write_words(folder, b"one\n" * 1000)
    whole = (folder / "words.txt.xz").read_bytes()
    for broken in (whole[:-9], b"no archive", whole[:12] + b"\xff" + whole[13:]):
        (folder / "words.txt.xz").write_bytes(broken)
        with pytest.raises(CheckpointError, match=r"words\.txt\.xz cannot be read"):
            load_checkpoint(folder)
