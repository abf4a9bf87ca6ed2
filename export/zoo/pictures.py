"""Pictures of a shipped translation model: BLEU by the length of the source, and an alignment."""

import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from export.zoo.effects import peers, without_replicas
from export.zoo.family import attendant
from export.zoo.results import Results
from export.zoo.stages import Scorer
from models.data.corpus import SentencePair
from serving.bundle.opening import open_bundle

SHIPPED_BY_LENGTH, ALIGNMENT = "by-length.svg", "alignment.png"
FEWEST = 200  # sentences of an origin that is drawn: bins of fewer say little
# of Bahdanau et al. 2015, figure 3
SENTENCE = "The agreement on the European Economic Area was signed in August 1992."
TRANSLATION = "L'accord sur la zone économique européenne a été signé en août 1992."


def has_alignment(bundle: Path) -> bool:
    return open_bundle(bundle).manifest.num_attention_heads > 0


def draw_alignment(bundle: Path, path: Path) -> None:
    """Plot the attention of each word of a given translation. Raises ZooError."""
    attendant("align", "--model", bundle, "-o", path, SENTENCE, "--translation", TRANSLATION)


def draw_by_length(pairs: Sequence[SentencePair], translations: Sequence[str], path: Path) -> None:
    """Plot BLEU over the number of source words, with a line for every origin of many sentences."""
    counts = Counter(pair.origin for pair in pairs)
    with open_picture(path, 1) as [axis]:
        for origin in sorted(name for name, count in counts.items() if count >= FEWEST):
            with_attention = [
                (pair, text)
                for pair, text in zip(pairs, translations, strict=True)
                if pair.origin == origin
            ]
            bins = Scorer([pair for pair, _ in with_attention]).by_length(
                [text for _, text in with_attention]
            )
            words, bleu = (
                [length_bin.mean_words for length_bin in bins],
                [length_bin.bleu for length_bin in bins],
            )
            axis.plot(
                words, bleu, marker="o", markersize=3, label=f"{origin} ({len(with_attention):,})"
            )
        axis.set(xlabel="words of the source", ylabel="BLEU (int8, greedy)")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(frameon=False)


matplotlib.use("Agg")


# Letters stay letters, and the same figures give the same file. Matplotlib would name ten fonts
# with every text.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attendant",
    "font.sans-serif": ["DejaVu Sans"],
}
BY_LENGTH, LEARNING = "bleu-by-length.svg", "learning.svg"
BLEU_LABEL, LOSS_LABEL = "BLEU of held-out captions", "nats a token of held-out prose"
LEAST_MINUTES = 0.005  # minutes are kept to the hundredth, and zero has no place among ratios
LINES = ("-", "--", ":")
PLACES = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')  # attributes of an SVG
DECIMALS = re.compile(r"(\d+\.\d)\d+")
STYLES = re.compile(r'style="([^"]*)"')


def select_translators(all_results: Sequence[Results]) -> list[Results]:
    """Return the results that the picture shows: same languages, same budget, best first."""
    ready = [r for r in peers(all_results) if r.translation and r.bundle]
    return sorted(ready, key=lambda r: -r.translation.fp32.beam_5.bleu if r.translation else 0.0)


def description(all_results: Sequence[Results]) -> str:
    """Return the picture's figures in words, for its description."""
    lines = []
    for results in select_translators(all_results):
        assert results.translation is not None
        bins = ", ".join(f"{b.words} words {b.bleu:.1f}" for b in results.translation.by_length)
        lines.append(f"{results.name}: {bins}")
    return "; ".join(lines)


def draw_all(all_results: Sequence[Results], folder: Path) -> dict[str, Path]:
    """Draw all plots for which there are figures; return their paths by title."""
    pictures = {}
    if select_translators(all_results):
        draw(all_results, folder / BY_LENGTH)
        pictures["BLEU by the number of source words"] = folder / BY_LENGTH
    if select_with_curves(all_results):
        draw_learning(all_results, folder / LEARNING)
        pictures["held-out text by minutes of training"] = folder / LEARNING
    return pictures


def select_with_curves(all_results: Sequence[Results]) -> list[Results]:
    """Choose those whose validations are kept, seeds aside."""
    return [r for r in without_replicas(all_results) if r.training and r.training.curve]


def draw_learning(all_results: Sequence[Results], path: Path) -> None:
    """Write an SVG of validations over minutes: BLEU of translations, loss of language models."""
    curves = select_with_curves(all_results)
    prose = [r for r in curves if r.is_of_prose]
    translations = [r for r in curves if not r.is_of_prose]
    groups = [(BLEU_LABEL, translations), (LOSS_LABEL, prose)]
    groups = [(label, group) for label, group in groups if group]
    with open_picture(path, len(groups)) as axes:
        for axis, (label, group) in zip(axes, groups, strict=True):
            for i, results in enumerate(group):
                colour = plt.get_cmap("turbo")(i / len(group))
                _plot_learning(axis, results, color=colour, linestyle=LINES[i % len(LINES)])
            axis.set(xlabel="minutes of training", ylabel=label, xscale="log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.grid(alpha=0.3)
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=7)


def _plot_learning(axis: plt.Axes, results: Results, **style: Any) -> None:
    assert results.training is not None
    curve = results.training.curve
    values = [
        validation.dev_loss if validation.dev_bleu is None else validation.dev_bleu
        for validation in curve
    ]
    minutes = [max(validation.minutes, LEAST_MINUTES) for validation in curve]
    axis.plot(minutes, values, label=results.name, **style)


@contextmanager
def open_picture(path: Path, num_axes: int) -> Iterator[list[plt.Axes]]:
    """Open axes, one below the other, that are saved as a picture if the block succeeds."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(num_axes, figsize=(8.5, 4.5 * num_axes), squeeze=False)
        yield list(axes[:, 0])
        _save(figure, path)


def draw(all_results: Sequence[Results], path: Path) -> None:
    """Write an SVG, whole or not at all."""
    translators = select_translators(all_results)
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.5, 4.5))
        for has_attention, colours, line in ((True, "viridis", "-"), (False, "autumn", "--")):
            group = [r for r in translators if r.bundle and r.bundle.has_attention == has_attention]
            for i, results in enumerate(group):
                colour = plt.get_cmap(colours)(i / max(len(group), 1) * 0.85)
                _plot(axis, results, color=colour, linestyle=line)
        axis.set(xlabel="words of the source", ylabel="BLEU (beam 5)")
        axis.set_title("Solid: attention. Dashed: a fixed context.", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        _save(figure, path, Description=description(all_results))


def _save(figure: plt.Figure, path: Path, **metadata: str) -> None:
    """Write an SVG, whole or not at all, with lengths to a tenth of a point."""
    fresh, written = path.with_name(f".{path.name}.new"), io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None, **metadata})
    plt.close(figure)
    fresh.write_text(compact(written.getvalue()), encoding="utf-8")
    os.replace(fresh, path)


def compact(svg: str) -> str:
    """Return an SVG of Matplotlib in a third of the bytes: with shorter numbers in places, equal
    styles as classes, and neither names of groups nor space between tags.
    """
    shorter = PLACES.sub(lambda match: DECIMALS.sub(r"\1", match[0]), svg)
    names = {style: f"s{i}" for i, style in enumerate(dict.fromkeys(STYLES.findall(shorter)))}
    classes = "".join(f".{name}{{{style}}}" for style, name in names.items())
    shorter = STYLES.sub(lambda match: f'class="{names[match[1]]}"', shorter)
    shorter = re.sub(r'<g id="[^"]*"', "<g", shorter.replace("</style>", f"{classes}</style>", 1))
    return re.sub(r">\s+<", "><", shorter)


def _plot(axis: plt.Axes, results: Results, **style: Any) -> None:
    assert results.translation is not None
    bins = results.translation.by_length
    words, bleu = (
        [length_bin.mean_words for length_bin in bins],
        [length_bin.bleu for length_bin in bins],
    )
    axis.plot(words, bleu, label=results.name, **style)
