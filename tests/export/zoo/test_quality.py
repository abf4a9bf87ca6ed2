"""Scores are sacreBLEU's own, over everything and in each bin."""

import re
from pathlib import Path

import pytest
from sacrebleu import corpus_bleu, corpus_chrf
from sacrebleu.metrics import BLEU

from export.zoo.stages import BINS, Scorer
from models.data.corpus import read_pairs

PAIRS = read_pairs(Path(__file__).parent.parent.parent / "data" / "en-fr-200.tsv")
SPOILT = [pair.target.upper() if i % 3 else pair.target[:-4] for i, pair in enumerate(PAIRS)]
REFERENCES = [[pair.target for pair in PAIRS]]


def test_quality_is_sacrebleus() -> None:
    scorer = Scorer(PAIRS)
    actual = scorer.quality(SPOILT)
    assert actual.bleu == pytest.approx(corpus_bleu(SPOILT, REFERENCES).score, abs=0.005)
    split, split_references = (
        [re.sub("([a-zà-ÿœ])'([a-zà-ÿœ])", r"\1' \2", text, flags=re.I) for text in texts]
        for texts in (SPOILT, REFERENCES[0])
    )
    lowercased = corpus_bleu(split, [split_references], lowercase=True).score
    assert actual.lowercased_bleu == pytest.approx(lowercased, abs=0.005)
    assert actual.chrf == pytest.approx(corpus_chrf(SPOILT, REFERENCES).score, abs=0.005)
    assert "case:lc" in scorer.signatures()["lowercased_bleu_signature"]
    assert "nrefs:1" in scorer.signatures()["bleu_signature"]


def test_the_interval_is_sacrebleus() -> None:
    printed = str(BLEU().corpus_score(SPOILT, REFERENCES, n_bootstrap=1000))
    theirs = float(printed.partition("±")[2].partition(")")[0])  # BLEU = 9.5 (μ = 9.6 ± 1.2) ...
    assert Scorer(PAIRS).quality(SPOILT).bleu_interval == pytest.approx(theirs, rel=0.15)


def test_every_bin_is_scored_alone() -> None:
    bins = Scorer(PAIRS).by_length(SPOILT)
    assert sum(each.sentences for each in bins) == len(PAIRS)
    assert [each.words for each in bins][-1] == f"{BINS[-1]}+"
    for each in bins:
        first, _, last = each.words.rstrip("+").partition("-")
        lengths = range(int(first), int(last) + 1 if last else 10_000)
        chosen = [i for i, pair in enumerate(PAIRS) if len(pair.source.split()) in lengths]
        references = [[PAIRS[i].target for i in chosen]]
        expected = corpus_bleu([SPOILT[i] for i in chosen], references).score
        assert each.sentences == len(chosen)
        assert each.bleu == pytest.approx(expected, abs=0.005)
        words = sum(len(PAIRS[i].source.split()) for i in chosen)
        assert each.mean_words == pytest.approx(words / len(chosen), abs=0.005)
