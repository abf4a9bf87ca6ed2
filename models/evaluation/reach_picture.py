"""Draws how far back losses reach: norms of gradients over distance, one line for each model.

Needs matplotlib.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure

from models.evaluation.gradients import Reach

# Letters stay letters, and the same figures give the same file.
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attendant"}
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
FAINTEST = 1e-6  # of what is drawn
LINES = ("-", "--", ":")


def draw(reaches: Sequence[Reach], path: Path) -> None:
    """Write a picture in the format of the path's suffix. Raises OSError."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.5))
        axes = figure.add_subplot()
        for i, reach in enumerate(reaches):
            colour = colormaps["turbo"]((i + 0.5) / len(reaches))
            style: Any = {"color": colour, "linestyle": LINES[i % len(LINES)]}
            axes.plot(range(len(reach.norms)), reach.norms, label=reach.name, **style)
        axes.set(
            xlabel="tokens between the one read last and another",
            ylabel="gradient of the next token's loss, the nearest = 1",
            yscale="log",
        )
        norms = [norm for reach in reaches for norm in reach.norms if norm]
        axes.set_ylim(max(FAINTEST, min(norms) / 2), 2 * max(norms))
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        suffix = path.suffix.lower()
        figure.savefig(
            path, format=suffix[1:], dpi=150, bbox_inches="tight", metadata=UNDATED.get(suffix)
        )
