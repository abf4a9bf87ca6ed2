"""The sparse expectation maximisation against the equations, written out in dictionaries."""

from collections import defaultdict

import numpy as np
import pytest

from export.bundling.bitext import Bitext, Sentences
from export.bundling.lexicon import ITERATIONS, LONGEST, learn_lexicon

NUM_SOURCES, NUM_TARGETS = 30, 40
COMMON, EMPTY = NUM_TARGETS, NUM_SOURCES
Texts = list[list[int]]


def bitext(sources: Texts, targets: Texts) -> Bitext:
    sides = (
        Sentences(np.concatenate(rows).astype(np.int64), np.array([*map(len, rows)]))
        for rows in (sources, targets)
    )
    return Bitext(*sides)


def some_texts(num_texts: int) -> tuple[Texts, Texts]:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 9, (2, num_texts))
    return (
        [random.integers(0, NUM_SOURCES, length).tolist() for length in lengths[0]],
        [random.integers(0, NUM_TARGETS, length).tolist() for length in lengths[1]],
    )


def plain(sources: Texts, targets: Texts, common: set[int]) -> dict[tuple[int, int], float]:
    actual: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(ITERATIONS):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            words = [*source, EMPTY]
            for token in (COMMON if each in common else each for each in target):
                total = sum(actual[s, token] for s in words)
                for s in words:
                    counts[s, token] += actual[s, token] / total
        sums: dict[int, float] = defaultdict(float)
        for (s, _), count in counts.items():
            sums[s] += count
        actual = defaultdict(float, {(s, t): n / sums[s] for (s, t), n in counts.items()})
    return {(s, t): p for (s, t), p in actual.items() if s != EMPTY and t != COMMON}


@pytest.mark.parametrize("common", [set(), {3, 17}])
def test_it_is_model_1(common: set[int]) -> None:
    sources, targets = some_texts(200)
    is_common = np.isin(np.arange(NUM_TARGETS), list(common))
    lexicon = learn_lexicon(bitext(sources, targets), NUM_SOURCES, is_common)
    expected = plain(sources, targets, common)
    pairs = list(zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True))
    assert pairs == sorted(expected)
    assert lexicon.probabilities == pytest.approx([expected[each] for each in pairs], rel=1e-3)


def test_very_long_sentences_teach_nothing() -> None:
    sources, targets = some_texts(50)
    none = np.zeros(NUM_TARGETS, bool)
    expected = learn_lexicon(bitext(sources, targets), NUM_SOURCES, none)
    long = [1] * (LONGEST + 1)
    more = bitext([long, *sources, [2]], [[2], *targets, long])
    actual = learn_lexicon(more, NUM_SOURCES, none)
    assert np.array_equal(actual.targets, expected.targets)
    assert np.array_equal(actual.probabilities, expected.probabilities)
