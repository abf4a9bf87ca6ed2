"""Averages of checkpoints are what the shares say, and only what fits is averaged."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from models.checkpoint import CheckpointError, average_checkpoints, load_checkpoint
from models.cli import average
from tests.tiny import tiny_checkpoint


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    actual = [
        tiny_checkpoint("transformer", tmp_path / f"{seed}", seed=seed).folder for seed in (1, 2, 3)
    ]
    (actual[-1] / "words.txt").write_text("a\n")
    (actual[-1] / "quality.json").write_text("{}")
    return actual


def test_shares_are_of_each(folders: list[Path], tmp_path: Path) -> None:
    average_checkpoints(folders, [1, 1, 2], tmp_path / "out")

    one, two, three = (load_checkpoint(folder).weights for folder in folders)
    actual = load_checkpoint(tmp_path / "out")
    assert actual.weights.keys() == one.keys()
    for name, weight in actual.weights.items():
        expected = (one[name] + two[name]) / 4 + three[name] / 2
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-7)
    assert actual.files["words.txt"] == b"a\n" and "quality.json" not in actual.files


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("transformer", {"decoder_layers": 1}, "decoder_layers is 1"),
        ("bahdanau", {}, "architecture is bahdanau"),
    ],
)
def test_what_does_not_fit_is_told(
    name: str, changes: dict[str, int], told: str, folders: list[Path], tmp_path: Path
) -> None:
    other = tiny_checkpoint(name, tmp_path / "other", **changes).folder
    with pytest.raises(CheckpointError, match=told) as error:
        average_checkpoints([other, folders[0]], [1, 1], tmp_path / "out")
    assert error.value.path == other and not (tmp_path / "out").exists()


def test_another_vocabulary_is_told(folders: list[Path], tmp_path: Path) -> None:
    path = folders[0] / "tokenizer.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(CheckpointError, match="another tokenizer"):
        average_checkpoints(folders, [1, 1, 1], tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--share", "1"], "2 checkpoints, but 1 times --share"),
        (["--share", "0", "--share", "1"], "0 is not in the range"),
        (["-o", "{one}"], "is one of those to average"),
    ],
)
def test_mistakes_of_the_command_line(
    options: list[str], told: str, folders: list[Path], tmp_path: Path
) -> None:
    given = [str(each) for each in folders[:2]] + ["-o", str(tmp_path / "out")]
    done = CliRunner().invoke(average, given + [each.format(one=given[0]) for each in options])
    assert done.exit_code == 2 and told in done.output


def test_the_command_averages_alike(folders: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(average, [*map(str, folders[:2]), "-o", str(out)])
    assert done.exit_code == 0 and "wrote" in done.output
    one, two = (load_checkpoint(folder).weights for folder in folders[:2])
    name = next(iter(one))
    np.testing.assert_allclose(load_checkpoint(out).weights[name], (one[name] + two[name]) / 2)
