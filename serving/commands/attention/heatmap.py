"""Draws how a sentence and its translation align, as Bahdanau et al. 2015 do in figure 3: the
source across the top, the translation down the side, a square for each pair, from black (0) to
white (1).

It knows words and numbers only. Needs matplotlib.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_CELL = 0.21  # inches, as all lengths here; a label of 9 points fits beside a cell
_CHARACTER = 0.085  # of a label, about
_GAP = 0.2  # between heat maps
_MARGIN = 0.1
_LABEL_POINTS = 9
_LONGEST_LABEL = 40  # characters
_DOTS_PER_INCH = 150


@dataclass(frozen=True)
class HeatMap:
    """weights: [target, source], 0 to 1. title: one line above, if there is any."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    title: str = ""


def draw(rows: Sequence[Sequence[HeatMap]], path: Path) -> None:
    """Heat maps in rows, each row of one target, in the format of the path's suffix. The picture is
    as large as they need. Raises OSError.
    """
    places = list(_places(rows))
    width, height = (max(place.corner[axis] for place in places) for axis in (0, 1))
    figure = Figure(figsize=(width, height))
    for heat_map, (right, bottom), is_first in places:
        across, down = len(heat_map.source) * _CELL, len(heat_map.target) * _CELL
        left = (right - across) / width
        axes = figure.add_axes((left, 1 - bottom / height, across / width, down / height))
        _fill(axes, heat_map, names_target=is_first)
    save(figure, path)


class _Place(NamedTuple):
    """corner: the lower right one, in inches from the upper left of the picture."""

    heat_map: HeatMap
    corner: tuple[float, float]
    is_first: bool


def _places(rows: Sequence[Sequence[HeatMap]]) -> Iterator[_Place]:
    y = 0.0
    for row in rows:
        first = row[0]
        y += _label_length(first.source) + (_CELL if first.title else 0)
        y += len(first.target) * _CELL
        x = _label_length(first.target)
        for heat_map in row:
            x += len(heat_map.source) * _CELL
            yield _Place(heat_map, (x, y), heat_map is first)
            x += _GAP
        y += _GAP


def _label_length(labels: Sequence[str]) -> float:
    return _GAP + _CHARACTER * max(map(len, map(label, labels)))


def _fill(axes: Axes, heat_map: HeatMap, names_target: bool) -> None:
    weights = np.array(heat_map.weights)
    axes.imshow(weights, cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=_LABEL_POINTS, pad=3)
    across = list(map(label, heat_map.source))
    down = [label(word) if names_target else "" for word in heat_map.target]
    axes.set_xticks(range(len(across)), across, rotation=90, parse_math=False)
    axes.set_yticks(range(len(down)), down, parse_math=False)
    if heat_map.title:
        axes.set_title(heat_map.title, fontsize=_LABEL_POINTS, parse_math=False)


def label(text: str) -> str:
    """Return a word as it is drawn."""
    shown = "".join(each if each.isprintable() else "\ufffd" for each in text)
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"


def save(figure: Figure, path: Path) -> None:
    """Write equal pictures as equal bytes on any day. What the font lacks is drawn as a box."""
    file_format = path.suffix[1:].lower()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    with rc_context({"svg.hashsalt": "attendant"}), catch_warnings():
        simplefilter("ignore", UserWarning)
        figure.savefig(
            path,
            format=file_format,
            dpi=_DOTS_PER_INCH,
            bbox_inches="tight",
            pad_inches=_MARGIN,
            metadata=undated,
        )
