"""Which tokens a source's shortlist has, and files that are no shortlists."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from serving.errors import BundleError
from serving.text.shortlist import Shortlist

VOCAB_SIZE = 40


def tables(**changes: Any) -> dict[str, np.ndarray]:
    """Make those of source ids 0 to 3: nothing, two tokens, three, one."""
    whole = {"always": [0, 1], "offsets": [0, 0, 2, 5, 6], "candidates": [9, 7, 30, 7, 1, 39]}
    types = {"always": np.int32, "offsets": np.int64, "candidates": np.int32}
    return {name: np.array(values, types[name]) for name, values in (whole | changes).items()}


def write_shortlist(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    save_file(arrays, folder / "shortlist.safetensors")
    return folder / "shortlist.safetensors"


def test_a_shortlist_is_the_union_of_its_tokens_candidates(tmp_path: Path) -> None:
    shortlist = Shortlist(write_shortlist(tmp_path, tables()), VOCAB_SIZE)
    assert shortlist.tokens_for((0,)).tolist() == [0, 1]
    assert shortlist.tokens_for((2, 1, 2, 0)).tolist() == [0, 1, 7, 9, 30]
    assert shortlist.tokens_for((3,)).tolist() == [0, 1, 39]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"offsets": [0, 0, 2, 5, 7]}, "offsets do not go"),
        ({"offsets": []}, "offsets do not go"),
        ({"offsets": [0, 3, 2, 5, 6]}, "ascend"),
        ({"candidates": [9, 7, 30, 7, 1, 40]}, "candidates has ids outside the vocabulary of 40"),
        ({"always": [-1]}, "always has ids outside"),
        ({"always": [[0, 1]]}, "expected a row of integers"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BundleError, match=problem):
        Shortlist(write_shortlist(tmp_path, tables(**changes)), VOCAB_SIZE)


def test_a_file_of_other_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="expected"):
        Shortlist(write_shortlist(tmp_path, {"other": np.zeros(3)}), VOCAB_SIZE)


@pytest.mark.parametrize("content", [b"", b"no safetensors at all", b"\xff" * 100])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shortlist.safetensors"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"shortlist\.safetensors"):
        Shortlist(path, VOCAB_SIZE)
