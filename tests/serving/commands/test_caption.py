"""`attendant caption`: lines about pictures, and a drawing of what words look at."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from serving.bundle.manifest import Precision
from serving.commands.attention_views import attention_of_words
from serving.commands.caption import caption
from tests.tiny import tiny_bundle


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(caption, [*map(str, arguments)])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tiny_bundle("vision-transformer", tmp_path, Precision.FP32)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (40, 60, 3), np.uint8)).save(path)
    return path


def test_a_line_for_each_picture(bundle: Path, photo: Path) -> None:
    result = run("--model", bundle, photo, photo)
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first == second


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_what_words_look_at_is_drawn(bundle: Path, photo: Path, suffix: str) -> None:
    path = photo.parent / f"looks.{suffix}"
    result = run("--model", bundle, photo, "--beam", "2", "-o", path)
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 1000


def test_pieces_of_a_word_look_together() -> None:
    weights = np.arange(10.0).reshape(5, 2)
    words = attention_of_words(("A", " d", "bytes:\\xc3", "bytes:\\xa9", ""), weights)
    assert [word.text for word in words] == ["A", "dé"]
    assert np.array_equal(words[1].weights, weights[1:4].mean(axis=0))


def test_what_is_refused(bundle: Path, photo: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(photo.read_bytes()[:60])
    other = tiny_bundle("llama", tmp_path, Precision.FP32)
    for arguments, words in (
        (("--model", bundle, photo, "-o", "a.txt"), "must end with"),
        (("--model", bundle, photo, photo, "-o", "a.png"), "one FILE"),
        (("--model", other, photo), "reads no pictures"),
        (("--model", bundle, broken), "broken.png: no picture in PNG"),
    ):
        result = run(*arguments)
        assert result.exit_code != 0
        assert words in result.output + str(result.exception)
