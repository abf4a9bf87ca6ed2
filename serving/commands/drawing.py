"""Plot the attention within a text: heat maps, a row of them for each layer and a column for each
head; or the attention of one word as lines (Vaswani et al. 2017, figures 3 to 5). Needs matplotlib.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL.Image import Image

from serving.commands.attention_views import Look, Shade, View, shaded
from serving.text.alignment import Array

_BLUES = colormaps["Blues"].with_extremes(bad="0.93")  # grey: cannot be looked at
_LINE = "#1f5fa8"
_GAP = 0.12  # inches, as all lengths here
_TITLE = 0.22
_CHARACTER = 0.0095  # of a label, times its points
_LINES_ROW = 0.24
_LINES_WIDTH = 1.6


class _Size(NamedTuple):
    """The size of a cell of a heat map and of its labels; no labels where they would not fit."""

    cell: float
    points: float | None


_ALONE = _Size(0.21, 9)


def _size(view: View) -> _Size:
    """Many maps stand on a sheet only if they are small."""
    num_maps, width = view.weights.shape[0] * view.weights.shape[1], len(view.columns)
    if num_maps == 1:
        return _ALONE if width <= 120 else _Size(25 / width, None)
    return _Size(0.12, 6) if width <= 32 else _Size(3.8 / width, None)


def draw_sheet(views: Sequence[View], shade: Shade, path: Path) -> None:
    """Draw heat maps of all layers and heads that views hold, one view below the other. Raises
    OSError.
    """
    panels = list(_panels(views))
    width = max(panel.right for panel in panels)
    height = max(panel.bottom for panel in panels)
    figure = Figure(figsize=(width, height))
    for panel in panels:
        across, down = panel.across, panel.down
        corner = ((panel.right - across) / width, 1 - panel.bottom / height)
        axes = figure.add_axes((*corner, across / width, down / height))
        _fill(axes, panel.view, panel.view.weights[panel.layer, panel.head], shade)
        _name(axes, panel)
    save(figure, path)


class _Panel(NamedTuple):
    """Places one map, by its lower right corner in inches from the upper left of the picture."""

    view: View
    layer: int
    head: int
    size: _Size
    right: float
    bottom: float

    @property
    def across(self) -> float:
        return len(self.view.columns) * self.size.cell

    @property
    def down(self) -> float:
        return len(self.view.rows) * self.size.cell


def _panels(views: Sequence[View]) -> Iterator[_Panel]:
    y = 0.0
    for view in views:
        size = _size(view)
        left = _length(view.rows, size)
        across, down = len(view.columns) * size.cell, len(view.rows) * size.cell
        y += _length(view.columns, size)
        for layer in range(view.weights.shape[0]):
            y += down
            for head in range(view.weights.shape[1]):
                right = left + head * (across + _GAP) + across
                yield _Panel(view, layer, head, size, right, y)
            y += _TITLE


def _length(labels: tuple[str, ...], size: _Size) -> float:
    if size.points is None:
        return _GAP
    return _GAP + _CHARACTER * size.points * max(len(label(each)) for each in labels)


def _fill(axes: Axes, view: View, weights: Array, shade: Shade) -> None:
    shades = shaded(weights, shade)
    if view.is_causal:
        shades = np.where(np.tri(*weights.shape) > 0, shades, np.nan)
    axes.imshow(shades, cmap=_BLUES, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
        spine.set_color("0.6")


def _name(axes: Axes, panel: _Panel) -> None:
    """Words stand above the first layer, and beside the first head."""
    view, points = panel.view, panel.size.points
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=points, pad=2)
    across = list(map(label, view.columns)) if points and panel.layer == 0 else []
    down = list(map(label, view.rows)) if points and panel.head == 0 else []
    axes.set_xticks(range(len(across)), across, rotation=90, parse_math=False)
    axes.set_yticks(range(len(down)), down, parse_math=False)
    if view.layers:
        name = f"layer {view.layers[panel.layer]}, head {view.heads[panel.head]}"
        axes.set_xlabel(name, fontsize=7, labelpad=2)


def draw_lines(views: Sequence[View], word: str, shade: Shade, path: Path) -> None:
    """Draw what a word looks at in the mean of each view, one view below the other. Raises
    OSError.
    """
    size = _Size(_LINES_ROW, 10)
    left = max(_length(view.rows, size) for view in views)
    right = max(_length(view.columns, size) for view in views)
    heights = [max(len(view.rows), len(view.columns)) * _LINES_ROW for view in views]
    width, height = left + _LINES_WIDTH + right, sum(heights) + _LINES_ROW * (len(views) - 1)
    figure = Figure(figsize=(width, height))
    y = height
    for view, own in zip(views, heights, strict=True):
        y -= own
        place = (left / width, y / height, _LINES_WIDTH / width, own / height)
        _draw_looks(figure.add_axes(place), view, word, shade)
        y -= _LINES_ROW
    save(figure, path)


def _draw_looks(axes: Axes, view: View, word: str, shade: Shade) -> None:
    num_rows = max(len(view.rows), len(view.columns))
    axes.set(xlim=(0, 1), ylim=(num_rows - 0.5, -0.5))
    axes.axis("off")
    shades = shaded(view.weights.mean(axis=(0, 1)), shade)
    for number, each in enumerate(view.columns):
        axes.text(1.02, number, label(each), ha="left", va="center", parse_math=False)
    for number, each in enumerate(view.rows):
        weight = "bold" if each == word else "normal"
        axes.text(
            -0.02, number, label(each), ha="right", va="center", weight=weight, parse_math=False
        )
        if each == word:
            _draw_row(axes, number, shades[number])


def _draw_row(axes: Axes, row: int, shades: Array) -> None:
    for column, shade in enumerate(shades.tolist()):
        if shade:
            axes.plot([0, 1], [row, column], color=_LINE, alpha=shade, linewidth=1 + 3 * shade)


_CELL = 0.21  # inches, as all lengths here; a label of 9 points fits beside a cell
_CELL_CHARACTER = 0.085  # of a label, about
_CELL_GAP = 0.2  # between heat maps
_MARGIN = 0.1
_LABEL_POINTS = 9
_LONGEST_LABEL = 40  # characters
_DOTS_PER_INCH = 150
_THUMBNAIL = 400  # pixels of a picture's longer side


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
        _fill_cells(axes, heat_map, names_target=is_first)
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


_PICTURE = 1.8  # inches of a side
_PICTURES_ACROSS = 6


def draw_looks(picture: Image, looks: Sequence[Look], share: float, path: Path) -> None:
    """Draw the picture, then for each word what it looks at, as Xu et al. 2015 do: the places with
    more weight are lighter. Raises OSError.

    share: the part of the picture's sides that the model reads, in the middle.
    """
    shown = picture.copy()
    shown.thumbnail((_THUMBNAIL, _THUMBNAIL))
    across = min(1 + len(looks), _PICTURES_ACROSS)
    down = -(-(1 + len(looks)) // across)
    height = _PICTURE * shown.height / shown.width + _TITLE
    figure = Figure(figsize=(across * _PICTURE, down * height), layout="constrained")
    for number, look in enumerate([None, *looks], 1):
        axes = figure.add_subplot(down, across, number)
        axes.axis("off")
        axes.imshow(shown)
        if look is not None:
            axes.set_title(label(look.word), fontsize=_LABEL_POINTS, parse_math=False)
            _shade(axes, look.weights, shown, share)
    save(figure, path)


def _shade(axes: Axes, weights: Array, picture: Image, share: float) -> None:
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
