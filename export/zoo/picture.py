"""BLEU by the length of the source, as in Bahdanau et al. 2015, figure 2."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from export.zoo.effects import peers
from export.zoo.results import Results

# Letters stay letters, and the same figures give the same file.
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attendant"}


def drawn(found: Sequence[Results]) -> list[Results]:
    """Those that the picture shows: same languages, same budget, best first."""
    ready = [r for r in peers(found) if r.translation and r.bundle]
    return sorted(ready, key=lambda r: -r.translation.fp32.beam_5.bleu if r.translation else 0.0)


def description(found: Sequence[Results]) -> str:
    """The figures of the picture in words, which it carries with it."""
    lines = []
    for results in drawn(found):
        assert results.translation is not None
        bins = ", ".join(f"{b.words} words {b.bleu:.1f}" for b in results.translation.by_length)
        lines.append(f"{results.name}: {bins}")
    return "; ".join(lines)


def draw(found: Sequence[Results], path: Path) -> None:
    """Write an SVG, whole or not at all."""
    shown = drawn(found)
    fresh = path.with_name(f".{path.name}.new")
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.5, 4.5))
        for has_attention, colours, line in ((True, "viridis", "-"), (False, "autumn", "--")):
            group = [r for r in shown if r.bundle and r.bundle.has_attention == has_attention]
            for i, results in enumerate(group):
                colour = plt.get_cmap(colours)(i / max(len(group), 1) * 0.85)
                _plot(axis, results, color=colour, linestyle=line)
        axis.set(xlabel="words of the source", ylabel="BLEU (beam 5)")
        axis.set_title("Solid: attention. Dashed: a fixed context.", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        metadata = {"Date": None, "Description": description(found)}
        figure.savefig(fresh, format="svg", bbox_inches="tight", metadata=metadata)
        plt.close(figure)
    os.replace(fresh, path)


def _plot(axis: plt.Axes, results: Results, **style: Any) -> None:
    assert results.translation is not None
    bins = results.translation.by_length
    words, bleu = [each.mean_words for each in bins], [each.bleu for each in bins]
    axis.plot(words, bleu, marker="o", markersize=3, label=results.name, **style)
