"""What a checkpoint is called."""

from dataclasses import replace
from pathlib import Path

import pytest

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
