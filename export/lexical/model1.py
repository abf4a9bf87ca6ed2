"""Which words translate which: IBM Model 1 (Brown et al. 1993, "The Mathematics of Statistical
Machine Translation", 4.1), by expectation maximisation over all pairs of tokens that occur in one
sentence and its translation.

Every such pair is one whole number, its key and the place of its target token; sorted, they are the
sparse table and its index at once, and an iteration is two passes over it.
"""

from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from export.graph.writer import Array
from export.lexical.corpus import Bitext

ITERATIONS = 5  # as many of the references' tokens are found as after 3, with shorter lists
LONGEST = 128  # tokens of sentences that are learned from: their cost goes by the square
PART = 1 << 18  # places handled at once


@dataclass(frozen=True)
class Lexicon:
    """Pairs of tokens: i64 sources and targets, ascending, f32 probabilities of target given
    source.
    """

    sources: Array
    targets: Array
    probabilities: Array


def learn_lexicon(bitext: Bitext, num_sources: int, is_common: Array) -> Lexicon:
    """is_common: bool [target vocabulary], tokens that need no entry: they count as one word."""
    places = _places_of(bitext, is_common)
    pairs, places_of_pairs = _pairs_of(bitext, places, num_sources, len(is_common))
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    sources, targets = np.divmod(pairs[first], len(is_common) + 1)
    repeats = np.diff(first, append=len(pairs))
    del pairs
    found = np.ones(len(first), np.float32)
    for _ in tqdm(range(ITERATIONS), desc="aligning", leave=False, disable=None):
        totals = np.bincount(places_of_pairs, np.repeat(found, repeats), len(places.targets))
        shares = (places.weights / totals).astype(np.float32)
        counts = np.add.reduceat(shares[places_of_pairs], first) * found
        found = (counts / np.bincount(sources, counts)[sources]).astype(np.float32)
    is_entry = (sources < num_sources) & (targets < len(is_common))
    return Lexicon(sources[is_entry], targets[is_entry], found[is_entry])


@dataclass(frozen=True)
class _Places:
    """Target tokens, each in its sentence. What is common in a sentence is one of them, of the id
    behind the vocabulary, and weighs as many as there are.
    """

    sentences: Array
    targets: Array
    weights: Array


def _places_of(bitext: Bitext, is_common: Array) -> _Places:
    target, length = bitext.target, bitext.target.lengths
    is_short = (length <= LONGEST) & (bitext.source.lengths <= LONGEST)
    sentences = np.repeat(np.arange(len(bitext)), length)
    is_rare = ~is_common[target.ids]
    rare = np.flatnonzero(is_rare & is_short[sentences])
    num_common = np.bincount(sentences[~is_rare], minlength=len(bitext)) * is_short
    common = np.flatnonzero(num_common)
    return _Places(
        np.concatenate([sentences[rare], common]),
        np.concatenate([target.ids[rare], np.full(len(common), len(is_common))]),
        np.concatenate([np.ones(len(rare)), num_common[common]]).astype(np.float32),
    )


def _pairs_of(
    bitext: Bitext, places: _Places, num_sources: int, num_targets: int
) -> tuple[Array, Array]:
    """Every source token with every place of its translation, and with it a word that stands for
    none: keys i64, ascending, and places i32.
    """
    num_places = len(places.targets)
    lengths = bitext.source.lengths[places.sentences] + 1
    ends = np.cumsum(lengths)
    packed = np.empty(int(lengths.sum()), np.int64)
    ids = np.append(bitext.source.ids, num_sources)
    for start in range(0, num_places, PART):
        part = slice(start, start + PART)
        repeats = lengths[part]
        begin, last = ends[start] - lengths[start], np.cumsum(repeats)
        within = np.arange(last[-1]) - np.repeat(last - repeats, repeats)
        sources = ids[within + np.repeat(bitext.source.starts[places.sentences[part]], repeats)]
        sources[last - 1] = num_sources
        keys = sources * (num_targets + 1) + np.repeat(places.targets[part], repeats)
        numbers = np.arange(start, start + len(repeats))
        packed[begin : begin + last[-1]] = keys * num_places + np.repeat(numbers, repeats)
    packed.sort()
    keys = packed // num_places
    return keys, (packed - keys * num_places).astype(np.int32)
