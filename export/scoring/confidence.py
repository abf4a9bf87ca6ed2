"""How well a translator's own evidence tells its good translations from its bad ones, and the
calibration of the evidence that is served.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import CHRF
from tqdm import tqdm

from export.scoring.scorers import job_of
from models.data.corpus import SentencePair
from models.errors import InputError
from serving.engine.config import EngineConfig
from serving.pipelines.decoding import require_finished
from serving.pipelines.loading import FILE_SLOTS, ModelParts, load_model
from serving.pipelines.streams import in_order
from serving.pipelines.translation.quality import Calibration
from serving.pipelines.translation.rendering import SegmentRenderer, join_segments
from serving.pipelines.translation.requests import TranslationRequests
from serving.pipelines.translation.segmenting import TextSegmenter
from serving.requests.request import MAX_LOGPROBS, Hypothesis, TokenLogprob

SERVED = "mean probability"
_JUMP, _LEAST_JUMP = 0.3, 0.005  # the published values of boosted probabilities
_LEAST_COVERAGE = 0.05
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """A translated text: its features, the larger the better, and its chrF, from 0 to 1."""

    features: Mapping[str, float]
    chrf: float


def confidence_report(
    bundle: Path,
    dev: Sequence[SentencePair],
    test: Sequence[SentencePair],
    num_beams: int | None = None,
) -> str:
    """Return in Markdown how features go with chrF on `test`, and the line that fits `dev`.

    Raises BundleError, and InputError for a model that does not translate or cannot be calibrated.
    """
    fitting, held_out = (asyncio.run(_examples(bundle, pairs, num_beams)) for pairs in (dev, test))
    if (line := fit_calibration(fitting)) is None:
        raise InputError(f"likelier translations are no better: no calibration of {bundle}")
    chrf = np.array([line_tried.chrf for line_tried in held_out])
    weights = np.linalg.lstsq(
        _matrix(fitting), [line_tried.chrf for line_tried in fitting], rcond=None
    )[0]
    columns = dict(zip(held_out[0].features, _matrix(held_out).T[1:], strict=True))
    columns["all, by least squares"] = _matrix(held_out) @ weights
    rows = ["| feature | Pearson | Spearman |", "|---|---:|---:|"]
    for name, values in columns.items():
        spearman = correlation(ranks(values), ranks(chrf))
        rows.append(f"| {name} | {correlation(values, chrf):.3f} | {spearman:.3f} |")
    fits = [_fit(line_tried, columns[SERVED], chrf) for line_tried in (line, Calibration())]
    return "\n".join(
        [
            *rows,
            "",
            f"chrF = {line.intercept} + {line.slope} * {SERVED}",
            f"on {len(chrf)} texts: {fits[0]}; default: {fits[1]}; of {chrf.std():.3f}",
        ]
    )


def calibration_of(bundle: Path, pairs: Sequence[SentencePair]) -> Calibration | None:
    """Return the calibration of a bundle by these pairs, as `fitted` does. Raises BundleError."""
    return fit_calibration(asyncio.run(_examples(bundle, pairs, None)))


def fit_calibration(examples: Sequence[Example]) -> Calibration | None:
    """Return the line of least squares; None if it falls."""
    probabilities = [example.features[SERVED] for example in examples]
    slope, intercept = np.polyfit(probabilities, [example.chrf for example in examples], 1).tolist()
    return Calibration(round(intercept, 3), round(slope, 3)) if slope > 0 else None


def correlation(one: Numbers, other: Numbers) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else 0.0


def ranks(values: Numbers) -> Numbers:
    """Return the rank of each value; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return means


def _fit(calibration: Calibration, probabilities: Numbers, chrf: Numbers) -> str:
    differences = np.array([calibration.score(probability) for probability in probabilities]) - chrf
    return f"error {np.sqrt(np.mean(differences**2)):.3f}, bias {differences.mean():+.3f}"


def _matrix(examples: Sequence[Example]) -> Numbers:
    """Return [examples, 1 + features]; the first column is 1."""
    return np.array([[1.0, *example.features.values()] for example in examples])


async def _examples(
    bundle: Path, pairs: Sequence[SentencePair], num_beams: int | None
) -> list[Example]:
    """Translate the sources as services do. Texts without a translated word are left out."""
    with tqdm(total=len(pairs), desc="decoding", unit="text", leave=False, disable=None) as bar:
        examples = []
        async for example in _translate_examples(bundle, pairs, num_beams):
            examples += [example] if example else []
            bar.update()
    return examples


async def _translate_examples(
    folder: Path, pairs: Sequence[SentencePair], num_beams: int | None
) -> AsyncIterator[Example | None]:
    parts, loaded = ModelParts.open(folder), load_model(folder, _CONFIG)
    manifest, tokenizers = parts.bundle.manifest, parts.tokenizers
    chrf = CHRF()
    job_of_all = replace(
        job_of(folder, num_beams),
        protection=True,
        returns_alignments=manifest.num_attention_heads > 0,
    )
    job_of_all = replace(job_of_all, decoding=replace(job_of_all.decoding, logprobs=MAX_LOGPROBS))
    segmenter = TextSegmenter(
        manifest.limits, manifest.tokens, tokenizers, known_words=parts.known_words
    )
    builder = TranslationRequests(manifest, tokenizers, parts.shortlist)

    async def work(numbered: tuple[int, SentencePair]) -> Example | None:
        number, pair = numbered
        job = replace(job_of_all, request_id=str(number), texts=(pair.source,))
        plan = segmenter.plan(job)
        ends = [*map(require_finished, await loaded.engine.run(builder.translations(job, plan)))]
        if not any(end.best.tokens.ids for end in ends):
            return None
        renderer = SegmentRenderer(job, plan.special_tokens, tokenizers, manifest, Calibration())
        [[best]] = join_segments(plan.layouts, renderer.render_all(plan.segments, ends), 1)
        lengths = [len(segment.source_ids) for segment in plan.segments]
        score = chrf.sentence_score(best.text, [pair.target]).score / 100
        return Example(features(lengths, [end.best for end in ends]), score)

    try:
        async for example in in_order(work, enumerate(pairs), FILE_SLOTS * 2):
            yield example
    finally:
        await loaded.engine.shutdown()


_CONFIG = EngineConfig(slots=FILE_SLOTS, max_waiting=None)


def features(source_lengths: Sequence[int], best: Sequence[Hypothesis]) -> dict[str, float]:
    """Return the features of a text's translation, the larger the better.

    source_lengths: the tokens of its segments' sources. best: their translations, with the
        likeliest tokens at each place.
    """
    tokens = [token for hypothesis in best for token in hypothesis.tokens.iter_tokens()]
    logprobs = np.array([logprob for _, logprob, _ in tokens])
    length = np.log((len(tokens) + 1) / (sum(source_lengths) + 1))
    return {
        SERVED: float(np.exp(logprobs).mean()),
        "mean log-probability": float(logprobs.mean()),
        "least log-probability": float(logprobs.min()),
        "boosted probability": float(np.mean([boosted_probability(*token) for token in tokens])),
        "negative entropy": -float(np.mean([entropy(top) for _, _, top in tokens])),
        "coverage": float(np.mean([*_coverages(best)] or [0.0])),
        "like length": -abs(float(length)),
    }


def boosted_probability(token_id: int, logprob: float, top: Sequence[TokenLogprob]) -> float:
    """Return the probability of a token, or, if it is a dominant one, that of all dominant ones:
    those before the last jump in the sorted distribution (Dinh and Niehues 2025, Are Generative
    Models Underconfident?).
    """
    probabilities = np.exp([token.logprob for token in top])
    jumps = probabilities[:-1] - probabilities[1:]
    ends = np.flatnonzero((jumps > _JUMP * probabilities[:-1]) & (jumps > _LEAST_JUMP))
    dominant = [token.token_id for token in top[: ends[-1] + 1]] if len(ends) else []
    if token_id not in dominant:
        return float(np.exp(logprob))
    return float(probabilities[: len(dominant)].sum())


def entropy(top: Sequence[TokenLogprob]) -> float:
    """Return the entropy of a distribution whose less likely tokens count as one, in nats."""
    logprobs = np.array([token.logprob for token in top])
    rest = max(1 - float(np.exp(logprobs).sum()), 1e-9)
    return -float((np.exp(logprobs) * logprobs).sum()) - rest * float(np.log(rest))


def _coverages(best: Sequence[Hypothesis]) -> Iterator[float]:
    """Yield how well the tokens of each source are attended to (Wu et al. 2016, equation 14, the
    mean over the source).
    """
    for hypothesis in best:
        if hypothesis.tokens.alignments:
            attended = np.minimum(np.sum(hypothesis.tokens.alignments, axis=0), 1)
            yield float(np.log(np.maximum(attended, _LEAST_COVERAGE)).mean())
