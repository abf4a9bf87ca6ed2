"""The stages of a family: training, evaluation, measurement. Each is done completely or not at all.

Training may share the machine, because its budget is processor time; measurement needs a quiet
machine.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from export.scoring.scorers import prose_scorer, translator
from export.zoo.family import Family, about_bundle
from export.zoo.results import (
    DocumentBits,
    LengthBin,
    ProseResults,
    Searches,
    SpeedResults,
    TokensPerSecond,
    TranslationQuality,
    TranslationResults,
    ZooError,
)
from models.data.corpus import SentencePair
from serving.bundle.manifest import Precision
from serving.engine.runtime.machine import available_cpus

BINS = (1, 9, 11, 13, 16, 20)  # words that a bin begins with
RESAMPLES = 1000
ELISION = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")


class Scorer:
    """A scorer of one hypothesis for each pair of a test set."""

    def __init__(self, pairs: Sequence[SentencePair]) -> None:
        self._references = [pair.target for pair in pairs]
        self._lengths = np.array([len(pair.source.split()) for pair in pairs])
        self._bleu, self._lowercased, self._chrf = BLEU(), BLEU(lowercase=True), CHRF()

    def quality(self, hypotheses: Sequence[str]) -> TranslationQuality:
        ours, references = list(hypotheses), self._references
        split, split_references = _split_elisions(ours), _split_elisions(references)
        lowercased = self._lowercased.corpus_score(split, [split_references])
        return TranslationQuality(
            bleu=round(self._bleu.corpus_score(ours, [references]).score, 2),
            bleu_interval=round(_interval(self._statistics(ours), _bleu), 2),
            chrf=round(self._chrf.corpus_score(ours, [references]).score, 2),
            lowercased_bleu=round(lowercased.score, 2),
        )

    def signatures(self) -> dict[str, str]:
        """Return the signatures of the metrics that `quality` computes."""
        return {
            "bleu_signature": str(self._bleu.get_signature()),
            "lowercased_bleu_signature": str(self._lowercased.get_signature()),
            "chrf_signature": str(self._chrf.get_signature()),
        }

    def by_length(self, hypotheses: Sequence[str]) -> tuple[LengthBin, ...]:
        """Return BLEU for each bin of source lengths that has sentences."""
        statistics, bins = self._statistics(hypotheses), []
        for first, end in pairwise((*BINS, None)):
            chosen = (self._lengths >= first) & (self._lengths < (end or np.inf))
            if chosen.any():
                bins.append(
                    LengthBin(
                        words=f"{first}-{end - 1}" if end else f"{first}+",
                        sentences=int(chosen.sum()),
                        mean_words=round(float(self._lengths[chosen].mean()), 2),
                        bleu=round(_bleu(statistics[chosen].sum(0)), 2),
                    )
                )
        return tuple(bins)

    def _statistics(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return the counts that BLEU sums over sentences (Papineni et al. 2002, section 2): both
        lengths, matching n-grams, n-grams; i64 [sentences, 10].
        """
        metric = BLEU(effective_order=True)
        both = zip(hypotheses, self._references, strict=True)
        scores = [metric.sentence_score(ours, [reference]) for ours, reference in both]
        return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores])


def _split_elisions(texts: Sequence[str]) -> list[str]:
    """Split l'eau into l' eau, as Moses does; sacreBLEU's 13a leaves it one token."""
    return [ELISION.sub("' ", text) for text in texts]


def _bleu(sums: np.ndarray) -> float:
    system, reference, *grams = sums.tolist()
    score = BLEU.compute_bleu(grams[:4], grams[4:], system, reference, smooth_method="exp")
    return float(score.score)


def fewer_bits(
    changed: Sequence[DocumentBits], plain: Sequence[DocumentBits]
) -> tuple[float, float]:
    """Return the saving in bits per byte of documents, and half of its 95 % interval."""
    pairs = zip(changed, plain, strict=True)
    saved = np.array([[ours.bytes, other.bits - ours.bits] for ours, other in pairs])
    return _per_byte(saved.sum(0)), _interval(saved, _per_byte)


def _per_byte(sums: np.ndarray) -> float:
    num_bytes, bits = sums
    return float(bits / num_bytes)


def _interval(statistics: np.ndarray, figure: Callable[[np.ndarray], float]) -> float:
    """Return half of the 95 % interval of a figure of sums, by bootstrap (Koehn 2004)."""
    draw, count = np.random.default_rng(0), len(statistics)
    samples = (statistics[draw.integers(count, size=count)].sum(0) for _ in range(RESAMPLES))
    low, high = np.quantile([figure(sums) for sums in samples], [0.025, 0.975])
    return float(high - low) / 2


BEAMS = 5
NUM_PROMPTS = 200  # of a language model, to measure its speed
PROMPT_WORDS = 8


@dataclass(frozen=True)
class Stage:
    """sections: of the results file, one of which is there when the stage is done."""

    name: str
    sections: tuple[str, ...]
    run: Callable[[Family], None]

    def is_done(self, family: Family) -> bool:
        if family.settings.again and self.run is not train:
            return False
        return any(
            getattr(family.saved_results, section, None) is not None for section in self.sections
        )


def train(family: Family) -> None:
    """Train until the budget is spent, from where training was stopped."""
    if not family.run.is_finished:
        family.train()
    family.save()


def evaluate(family: Family) -> None:
    """Score the bundles in fp32 and int8: translations, greedy and by beam search, or prose."""
    _must_be_trained(family)
    if family.recipe.is_of_prose:
        _evaluate_prose(family)
    else:
        _evaluate_translations(family)


def _evaluate_prose(family: Family) -> None:
    fp32, int8 = (
        prose_scorer(family.bundle(precision))(family.held_out)
        for precision in (Precision.FP32, Precision.INT8)
    )
    results = ProseResults(
        command=f"attendant lab zoo {family.name} --only evaluate",
        documents=fp32.documents,
        bytes=fp32.bytes,
        tokens=fp32.tokens,
        window=fp32.window,
        stride=fp32.stride,
        fp32=fp32.bits_per_byte,
        int8=int8.bits_per_byte,
        perplexity=fp32.perplexity,
        by_document=tuple(DocumentBits(**asdict(document)) for document in fp32.by_document),
    )
    family.save(bundle=about_bundle(family.bundle(Precision.INT8)), prose=results)


def _evaluate_translations(family: Family) -> None:
    scorer = Scorer(family.test)
    fp32, int8 = family.bundle(Precision.FP32), family.bundle(Precision.INT8)
    beams = _translations(family, fp32, BEAMS)
    results = TranslationResults(
        command=f"attendant lab zoo {family.name} --only evaluate",
        test=str(family.recipe.config.data.test),
        sentences=len(family.test),
        fp32=Searches(
            greedy=scorer.quality(_translations(family, fp32)), beam_5=scorer.quality(beams)
        ),
        int8=Searches(
            greedy=scorer.quality(_translations(family, int8)),
            beam_5=scorer.quality(_translations(family, int8, BEAMS)),
        ),
        by_length=scorer.by_length(beams),
        **scorer.signatures(),
    )
    family.save(bundle=about_bundle(int8), translation=results)


def measure(family: Family) -> None:
    """Measure the engine's speed on the test set, and compare it with its step graph alone."""
    _must_be_trained(family)
    sentences = family.folder / "sentences.txt"
    texts = _beginnings(family) if family.recipe.is_of_prose else _sources(family)
    sentences.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    results = SpeedResults(
        command=f"attendant lab zoo {family.name} --only measure",
        machine=_machine(),
        threads=family.settings.threads or available_cpus(),
        fp32=_pace(family, family.bundle(Precision.FP32), sentences, len(texts)),
        int8=_pace(family, family.bundle(Precision.INT8), sentences, len(texts)),
    )
    family.save(bundle=about_bundle(family.bundle(Precision.INT8)), speed=results)


STAGES = {
    stage.name: stage
    for stage in (
        Stage("train", ("training",), train),
        Stage("evaluate", ("translation", "prose"), evaluate),
        Stage("measure", ("speed",), measure),
    )
}


def select_stages(names: Iterable[str]) -> list[Stage]:
    """Return the stages of these names in their order; without names, all."""
    chosen_names = set(names) or set(STAGES)
    return [stage for name, stage in STAGES.items() if name in chosen_names]


def _must_be_trained(family: Family) -> None:
    if not family.run.is_finished:
        raise ZooError([f"it is not trained yet: attendant lab zoo {family.name} --only train"])


def _translations(family: Family, bundle: Path, num_beams: int | None = None) -> list[str]:
    return translator(bundle, num_beams)(_sources(family))


def _sources(family: Family) -> list[str]:
    return [pair.source for pair in family.test]


def _beginnings(family: Family) -> list[str]:
    """Return prompts for a language model: the first words of held-out paragraphs."""
    paragraphs = (text for document in family.held_out for text in document.split("\n"))
    return [" ".join(text.split()[:PROMPT_WORDS]) for text in islice(paragraphs, NUM_PROMPTS)]


def _pace(family: Family, bundle: Path, sentences: Path, num_texts: int) -> TokensPerSecond:
    words = ["bench", bundle, "--input", sentences, "--json", *family.thread_options]
    sizes = ["--batch", "1,32", "--requests", num_texts]
    loops = json.loads(family.attendant(*words, *sizes))["results"]
    graph = ["--compare", "graph", "--batch", 32]
    [compared] = json.loads(family.attendant(*words, *graph))["results"]
    return TokensPerSecond(
        batch_1=loops[0]["tokens_per_second"],
        batch_32=loops[1]["tokens_per_second"],
        engine_over_graph=round(compared["median"], 3),
    )


def _machine() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")
