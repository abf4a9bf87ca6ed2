"""The effects that the papers report: whether they show here, said from the figures.

Everything is compared in fp32, translations by beam 5, among families with the same budget and
languages.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from export.zoo.results import Results, TranslationQuality
from export.zoo.stages import fewer_bits

SLOPE_WORDS = 10


@dataclass(frozen=True)
class Change:
    """Two recipes that differ by one option. otherwise: why it might not help here, if there is
    a known reason.
    """

    says: str
    changed: str
    plain: str
    otherwise: str = ""


CHANGES = (
    Change(
        "Input feeding (Luong et al. 2015, section 3.3)",
        "luong",
        "luong-no-feeding",
        "captions are short and their words come in the order of the source, so that there is"
        " little to remember of what was attended to",
    ),
    Change(
        "Reversing the source for a fixed context (Sutskever et al. 2014, section 3.3)",
        "sutskever-reversed",
        "sutskever",
        "captions are short, and the gain that the paper reports is largest for long sentences",
    ),
    Change(
        "Input feeding at equal steps",
        "luong-steps",
        "luong-no-feeding-steps",
        "captions are short and their words come in the order of the source",
    ),
    Change(
        "Deep fusion (Cheng et al. 2016, section 4)",
        "lstmn-deep",
        "lstmn",
        "a step takes longer, so that less was seen",
    ),
    Change(
        "Two layers of LSTM instead of one of GRU",
        "luong-lstm",
        "luong",
        "29,000 captions are few for two layers",
    ),
    Change(
        "Norms after what is added (Vaswani et al. 2017)",
        "transformer-tiny-post",
        "transformer-tiny",
        "they want a smaller learning rate and a longer warm-up (Xiong et al. 2020) than here",
    ),
    Change("GRU instead of LSTM (Cho et al. 2014)", "gru-lm", "lstm-lm"),
    Change("MUT1 instead of GRU (Jozefowicz et al. 2015)", "mut1-lm", "gru-lm"),
    Change("MUT2 instead of GRU (Jozefowicz et al. 2015)", "mut2-lm", "gru-lm"),
    Change("MUT3 instead of GRU (Jozefowicz et al. 2015)", "mut3-lm", "gru-lm"),
    Change("Resetting before the product (Cho et al. 2014)", "gru-reset-before-lm", "gru-lm"),
    Change("State carried from window to window", "lstm-carried-lm", "lstm-lm"),
    Change("Attention to what was read (Daniluk et al. 2017)", "attentive-lm", "gru-lm"),
    Change("Keys beside values (Daniluk et al. 2017)", "key-value-lm", "attentive-lm"),
    Change("Predictions beside both", "key-value-predict-lm", "key-value-lm"),
    Change("The last four outputs instead of attention", "ngram-lm", "key-value-predict-lm"),
    Change("Rotary positions and SwiGLU (Touvron et al. 2023)", "llama-lm", "gpt2-lm"),
    Change("A state space instead of attention (Dao and Gu 2024)", "mamba2-lm", "llama-lm"),
)


@dataclass(frozen=True)
class Gain:
    """The difference between two results, and half of its 95 % interval.

    digits: the number of digits shown.
    """

    by: float
    interval: float
    figures: str
    unit: str
    digits: int
    among: str


@dataclass(frozen=True)
class Published:
    """A published figure: tokenised, lower-cased BLEU on this test set."""

    recipe: str
    source: str
    bleu: float


PUBLISHED = (
    Published("transformer-tiny-long", "Wu et al. 2021", 62),
    Published("transformer-tiny-en-de-long", "Wu et al. 2021", 41),
)


def effects(all_results: Sequence[Results]) -> list[str]:
    """Return a sentence for each effect that was measured."""
    by_name = {results.name: results for results in all_results}
    lines = [
        *_of_length(peers(all_results)),
        *(describe_change(change, by_name) for change in CHANGES),
    ]
    lines += [_against(published, by_name) for published in PUBLISHED]
    lines += spreads(all_results)
    return [line for line in lines if line]


def peers(all_results: Sequence[Results]) -> list[Results]:
    """Return the results with the most common languages and budget, which can be compared."""
    firsts = [results for results in without_replicas(all_results) if not results.is_of_prose]
    kinds = Counter(_kind(results) for results in firsts)
    [(commonest, _)] = kinds.most_common(1) or [((), 0)]
    return [results for results in firsts if _kind(results) == commonest]


def points_lost(results: Results) -> float:
    """BLEU lost with SLOPE_WORDS further source words: minus the slope of a straight line through
    the bins, each weighing as many as its sentences.
    """
    assert results.translation is not None
    bins = results.translation.by_length
    words, bleu = (
        [length_bin.mean_words for length_bin in bins],
        [length_bin.bleu for length_bin in bins],
    )
    slope, _ = np.polyfit(words, bleu, 1, w=np.sqrt([length_bin.sentences for length_bin in bins]))
    return float(-slope * SLOPE_WORDS)


def _kind(results: Results) -> tuple[object, ...]:
    training = results.training
    return results.languages, training.max_minutes if training else None


def _of_length(all_results: Sequence[Results]) -> Iterator[str]:
    """Bahdanau et al. 2015, figure 2."""
    lost: dict[bool, list[float]] = {True: [], False: []}
    for results in all_results:
        if results.translation and results.bundle and len(results.translation.by_length) > 1:
            lost[results.bundle.has_attention].append(points_lost(results))
    attention, fixed = lost[True], lost[False]
    if attention and fixed:
        shows = min(fixed) > max(attention)
        tends = mean(fixed) > mean(attention)
        verdict = "shows" if shows else "shows on average" if tends else "does not show"
        yield (
            f"**Source length** (Bahdanau et al. 2015, figure 2) {verdict}: with every"
            f" {SLOPE_WORDS} further words of the source, models with a fixed context lose"
            f" {_range(fixed)} BLEU, models with attention {_range(attention)}."
        )


def describe_change(change: Change, by_name: dict[str, Results]) -> str | None:
    changed, plain = by_name.get(change.changed), by_name.get(change.plain)
    if changed is None or plain is None or _kind(changed) != _kind(plain):
        return None
    gain = _gained_bleu(changed, plain) or _saved_bits(changed, plain)
    return _says(change, gain, _epochs(changed, plain)) if gain else None


def _says(change: Change, gain: Gain, epochs: str) -> str:
    reason = "; ".join(part for part in (change.otherwise, epochs) if part)
    size = f"{abs(gain.by):.{gain.digits}f} {gain.unit} ({gain.figures})"
    if gain.by > gain.interval:
        return f"**{change.says}** helps by {size}."
    if gain.by < -gain.interval:
        return f"**{change.says}** costs {size}: {reason}."
    return (
        f"**{change.says}** does not show: {'+' if gain.by >= 0 else '-'}{size} are no more than"
        f" chance among these {gain.among} (±{gain.interval:.{gain.digits}f}); {reason}."
    )


def _gained_bleu(changed: Results, plain: Results) -> Gain | None:
    ours, other = _beam(changed), _beam(plain)
    if ours is None or other is None:
        return None
    figures = f"{ours.bleu:.1f} with, {other.bleu:.1f} without"
    interval = max(ours.bleu_interval, other.bleu_interval)
    return Gain(ours.bleu - other.bleu, interval, figures, "BLEU", 1, "sentences")


def _saved_bits(changed: Results, plain: Results) -> Gain | None:
    ours, other = changed.prose, plain.prose
    if ours is None or other is None:
        return None
    figures = f"{ours.fp32:.3f} with, {other.fp32:.3f} without"
    by, interval = fewer_bits(ours.by_document, other.by_document)
    return Gain(by, interval, figures, "bits per byte", 3, "documents")


def _epochs(changed: Results, plain: Results) -> str:
    """The budget is time: what costs time is trained for fewer epochs."""
    if not (changed.training and plain.training):
        return ""
    epochs = f"{changed.training.epochs:.1f} epochs with, {plain.training.epochs:.1f} without"
    return f"the budget was enough for {epochs}"


def _against(published: Published, by_name: dict[str, Results]) -> str | None:
    ours = _beam(by_name.get(published.recipe))
    if ours is None:
        return None
    return (
        f"**Published** ({published.source}): {published.bleu:g} BLEU of tokenised, lower-cased"
        f" text; `{published.recipe}` has {ours.lowercased_bleu:.1f} lower-cased BLEU. The two are"
        " not the same measure."
    )


def _beam(results: Results | None) -> TranslationQuality | None:
    return results.translation.fp32.beam_5 if results and results.translation else None


def _range(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


LUONG_SCORES = ("dot", "general", "concat")
LUONG_PLACES = ("global", "local-m", "local-p")


def grid(all_results: Sequence[Results]) -> str:
    """Return a Markdown table; an empty text for a single recipe."""
    by_name = {results.name: results for results in all_results}
    rows = [[_cell(by_name.get(recipe_of(s, p))) for p in LUONG_PLACES] for s in LUONG_SCORES]
    if sum(cell != "" for row in rows for cell in row) < 2:
        return ""
    lines = [f"| Luong's score | {' | '.join(LUONG_PLACES)} |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {s} | {' | '.join(row)} |" for s, row in zip(LUONG_SCORES, rows, strict=True)]
    return "\n".join(lines)


def recipe_of(score: str, place: str) -> str:
    """luong is general and global; what is not, a recipe's name says."""
    parts = [score] * (score != "general") + [place] * (place != "global")
    return "-".join(["luong", *parts])


def _cell(results: Results | None) -> str:
    if results is None or results.translation is None:
        return ""
    return f"{results.translation.fp32.beam_5.bleu:.1f}"


SEED = re.compile(r"-seed-\d+$")


def without_replicas(all_results: Sequence[Results]) -> list[Results]:
    """Return the results without those of further seeds."""
    return [results for results in all_results if not SEED.search(results.name)]


def spreads(all_results: Sequence[Results]) -> list[str]:
    """A sentence for each recipe that was trained with several seeds: beam 5, fp32."""
    lines = []
    for first in without_replicas(all_results):
        alike = [r for r in all_results if SEED.sub("", r.name) == first.name]
        bleu = [r.translation.fp32.beam_5.bleu for r in alike if r.translation]
        if len(bleu) > 1:
            figures = ", ".join(f"{score:.1f}" for score in bleu)
            lines.append(
                f"**Seeds**: `{first.name}` has {figures} BLEU with {len(bleu)} seeds, a range of"
                f" {max(bleu) - min(bleu):.1f}; smaller differences between recipes say nothing."
            )
    return lines
