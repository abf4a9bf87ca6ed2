"""The picture itself: squares of the right grey, as many as words, labels as they are written."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from serving.commands.drawing import HeatMap, draw_heat_maps

CELL_DOTS = 31.5  # a cell of 0.21 inches at 150 dots an inch


def heat_map(num_source: int, num_target: int, title: str = "") -> HeatMap:
    weights = np.random.default_rng(0).random((num_target, num_source))
    source, target = (tuple(f"{n}é" for n in range(size)) for size in (num_source, num_target))
    return HeatMap(source, target, tuple(map(tuple, weights.tolist())), title)


def pixels(path: Path, *rows: list[HeatMap]) -> np.ndarray:
    draw_heat_maps(rows, path)
    return np.asarray(imread(path))[..., 0]


def frame(dots: np.ndarray) -> tuple[int, int, int, int]:
    """First and last row and column of the only box, whose border is a long black line."""
    is_black = dots < 0.4
    down, across = (np.flatnonzero(is_black.sum(axis) > 100) for axis in (1, 0))
    return down[0], down[-1], across[0], across[-1]


def test_each_pair_is_a_square_of_its_own_grey(tmp_path: Path) -> None:
    drawn = heat_map(7, 5)
    dots = pixels(tmp_path / "map.png", [drawn])
    top, bottom, left, right = frame(dots)
    assert bottom - top == pytest.approx(5 * CELL_DOTS, abs=4)
    assert right - left == pytest.approx(7 * CELL_DOTS, abs=4)
    for row, weights in enumerate(drawn.weights):
        for column, weight in enumerate(weights):
            y, x = top + round((row + 0.5) * CELL_DOTS), left + round((column + 0.5) * CELL_DOTS)
            assert dots[y, x] == pytest.approx(weight, abs=0.01)


@pytest.mark.parametrize("num_words", [3, 60])
def test_the_picture_grows_with_its_words(tmp_path: Path, num_words: int) -> None:
    height, width = pixels(tmp_path / "map.png", [heat_map(num_words, num_words + 1)]).shape
    for size, cells in ((width, num_words), (height, num_words + 1)):
        assert cells * CELL_DOTS < size < cells * CELL_DOTS + 120


def test_many_stand_in_rows(tmp_path: Path) -> None:
    heads = [heat_map(8, 4, f"head {n}") for n in range(3)]
    height, width = pixels(tmp_path / "one.png", heads[:1]).shape
    higher, wider = pixels(tmp_path / "more.png", heads, [heat_map(20, 6)]).shape
    assert wider > width + 2 * 8 * CELL_DOTS
    assert higher > height + 6 * CELL_DOTS


@pytest.mark.parametrize("suffix", ["svg", "SVG", "pdf", "png"])
def test_the_same_picture_is_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = (tmp_path / f"{name}.{suffix}" for name in "ab")
    for path in (first, second):
        draw_heat_maps([[heat_map(3, 2)]], path)
    assert first.read_bytes() == second.read_bytes() != b""


def test_labels_are_as_written_and_of_the_target_once(tmp_path: Path) -> None:
    words: dict[str, Any] = {"source": ("$x^2$", "\n日", "w" * 99), "target": ("d'août", "!")}
    weights = ((0.1, 0.2, 0.7), (0.0, 1.0, 0.0))
    draw_heat_maps([[HeatMap(weights=weights, **words)] * 2], tmp_path / "map.svg")
    labels = re.findall("<!-- (.*) -->", (tmp_path / "map.svg").read_text())
    source = ["$x^2$", "\ufffd日", "w" * 39 + "…"]
    assert labels[:5] == [*source, "d'août", "!"]
