"""Sheets and lines: each weight is as dark as it should be, and stands where it should."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from serving.commands.attention_views import Shade, View, shaded
from serving.commands.drawing import draw_lines, draw_sheet

CELL_DOTS = 31.5  # a cell of 0.21 inches at 150 dots an inch
WORDS = ("<start>", "The", "dog", "ran")


def causal(num_layers: int = 1, num_heads: int = 1, words: tuple[str, ...] = WORDS) -> View:
    scores = np.random.default_rng(0).random((num_layers, num_heads, len(words), len(words)))
    weights = np.tril(scores + 0.1)
    weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
    several = num_layers * num_heads > 1
    layers, heads = (tuple(range(size)) if several else () for size in (num_layers, num_heads))
    return View("decoder", words, words, weights, layers, heads)


def labels(path: Path) -> list[str]:
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_a_sheet_has_layers_down_and_heads_across(tmp_path: Path) -> None:
    view = causal(2, 3)
    draw_sheet([view], Shade.ROW, tmp_path / "sheet.svg")
    draw_sheet([view], Shade.ROW, tmp_path / "sheet.png")

    found = labels(tmp_path / "sheet.svg")
    assert [each for each in found if each.startswith("layer")] == [
        f"layer {layer}, head {head}" for layer in range(2) for head in range(3)
    ]
    assert found.count("dog") == 3 + 2  # above the first layer, beside the first head
    height, width = imread(tmp_path / "sheet.png").shape[:2]
    assert width > height


def test_what_cannot_be_looked_at_is_grey(tmp_path: Path) -> None:
    words = tuple(f"{number}" for number in range(12))
    draw_sheet([causal(words=words)], Shade.WEIGHT, tmp_path / "map.png")
    dots = np.asarray(imread(tmp_path / "map.png"))[..., :3]

    is_grey = np.abs(dots - 0.93).max(axis=-1) < 0.01
    assert is_grey.sum() == pytest.approx(12 * 11 / 2 * CELL_DOTS**2, rel=0.1)


def test_lines_go_from_the_word_alone(tmp_path: Path) -> None:
    draw_lines([causal()], "dog", Shade.WEIGHT, tmp_path / "lines.svg")

    picture = (tmp_path / "lines.svg").read_text()
    assert picture.count('style="fill: none; stroke: #1f5fa8') == 3  # at itself and all before
    assert labels(tmp_path / "lines.svg").count("dog") == 2


def test_a_long_text_is_a_picture_without_words(tmp_path: Path) -> None:
    words = tuple(f"w{number}" for number in range(40))
    draw_sheet([causal(1, 2, words)], Shade.LOG, tmp_path / "long.svg")
    assert labels(tmp_path / "long.svg") == ["layer 0, head 0", "layer 0, head 1"]


def test_shades_show_what_a_sink_leaves() -> None:
    weights = np.array([[0.97, 0.02, 0.01, 0.0]])

    assert shaded(weights, Shade.WEIGHT) is weights
    assert shaded(weights, Shade.ROW)[0].tolist() == pytest.approx([1, 2 / 97, 1 / 97, 0])
    assert shaded(weights, Shade.LOG)[0].tolist() == pytest.approx(
        [0.9956, 0.4337, 0.3333, 0], 1e-3
    )
    assert shaded(np.zeros((1, 3)), Shade.ROW).tolist() == [[0, 0, 0]]  # nothing came before
