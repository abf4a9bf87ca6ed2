"""Plot attention as pictures: heat maps of how translations align with their sources (Bahdanau et
al. 2015, figure 3), and what each word of a caption attends to in its picture (Xu et al. 2015).

Needs matplotlib.
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
from PIL.Image import Image

from serving.commands.attention_views import WordAttention
from serving.text.alignment import Array

_CELL = 0.21  # inches, as all lengths here; a label of 9 points fits beside a cell
_CELL_CHARACTER = 0.085  # of a label, about
_CELL_GAP = 0.2  # between heat maps
_MARGIN = 0.1
_LABEL_POINTS = 9
_LONGEST_LABEL = 40  # characters
_DOTS_PER_INCH = 150
_THUMBNAIL = 400  # pixels of a picture's longer side
_TITLE = 0.22
_PICTURE = 1.8  # of a side
_PICTURES_ACROSS = 6


@dataclass(frozen=True)
class HeatMap:
    """weights: [target, source], 0 to 1. title: one line above, if there is any."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    title: str = ""


def draw_heat_maps(rows: Sequence[Sequence[HeatMap]], path: Path) -> None:
    """Draw heat maps in rows, each row of one target, in the format of the path's suffix. The
    picture is as large as they need. Raises OSError.
    """
    places = list(_place_heat_maps(rows))
    width, height = (max(place.corner[axis] for place in places) for axis in (0, 1))
    figure = Figure(figsize=(width, height))
    for heat_map, (right, bottom), is_first in places:
        across, down = len(heat_map.source) * _CELL, len(heat_map.target) * _CELL
        left = (right - across) / width
        axes = figure.add_axes((left, 1 - bottom / height, across / width, down / height))
        _fill_cells(axes, heat_map, names_target=is_first)
    save(figure, path)


class _PlacedHeatMap(NamedTuple):
    """corner: the lower right one, in inches from the upper left of the picture."""

    heat_map: HeatMap
    corner: tuple[float, float]
    is_first: bool


def _place_heat_maps(rows: Sequence[Sequence[HeatMap]]) -> Iterator[_PlacedHeatMap]:
    y = 0.0
    for row in rows:
        first = row[0]
        y += _label_length(first.source) + (_CELL if first.title else 0)
        y += len(first.target) * _CELL
        x = _label_length(first.target)
        for heat_map in row:
            x += len(heat_map.source) * _CELL
            yield _PlacedHeatMap(heat_map, (x, y), heat_map is first)
            x += _CELL_GAP
        y += _CELL_GAP


def _label_length(labels: Sequence[str]) -> float:
    return _CELL_GAP + _CELL_CHARACTER * max(map(len, map(label, labels)))


def _fill_cells(axes: Axes, heat_map: HeatMap, names_target: bool) -> None:
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


def draw_word_attention(
    picture: Image, words: Sequence[WordAttention], share: float, path: Path
) -> None:
    """Draw the picture, then for each word what it attends to, as Xu et al. 2015 do: the places
    with more weight are lighter. Raises OSError.

    share: the part of the picture's sides that the model reads, in the middle.
    """
    thumbnail = picture.copy()
    thumbnail.thumbnail((_THUMBNAIL, _THUMBNAIL))
    across = min(1 + len(words), _PICTURES_ACROSS)
    down = -(-(1 + len(words)) // across)
    height = _PICTURE * thumbnail.height / thumbnail.width + _TITLE
    figure = Figure(figsize=(across * _PICTURE, down * height), layout="constrained")
    for number, word in enumerate([None, *words], 1):
        axes = figure.add_subplot(down, across, number)
        axes.axis("off")
        axes.imshow(thumbnail)
        if word is not None:
            axes.set_title(label(word.text), fontsize=_LABEL_POINTS, parse_math=False)
            _darken(axes, word.weights, thumbnail, share)
    save(figure, path)


def _darken(axes: Axes, weights: Array, picture: Image, share: float) -> None:
    """Darken the picture where weights are small beside the largest."""
    side = round(len(weights) ** 0.5)
    light = (weights / max(weights.max(), 1e-9)).reshape(side, side)
    left, top = (size * (1 - share) / 2 - 0.5 for size in picture.size)
    right, bottom = (size * (1 + share) / 2 - 0.5 for size in picture.size)
    axes.imshow(
        np.zeros_like(light),
        cmap="gray",
        alpha=0.8 * (1 - light),
        extent=(left, right, bottom, top),
        interpolation="bilinear",
    )
    axes.set(xlim=(-0.5, picture.width - 0.5), ylim=(picture.height - 0.5, -0.5))


def label(text: str) -> str:
    """Return a word as it is drawn."""
    printable = "".join(char if char.isprintable() else "\ufffd" for char in text)
    if len(printable) <= _LONGEST_LABEL:
        return printable
    return printable[: _LONGEST_LABEL - 1] + "…"


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
