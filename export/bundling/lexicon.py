"""IBM Model 1 (Brown et al. 1993): probabilities of target tokens given a source token.

They are learned from a parallel corpus by expectation maximisation over sparse pairs.
"""

from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from export.bundling.bitext import Bitext
from export.graph.writer import Array

ITERATIONS = 5  # as many of the references' tokens are found as after 3, with shorter lists
LONGEST = 128  # tokens of sentences that are learned from: their cost goes by the square
PART = 1 << 18  # positions handled at once, so that their arrays stay at some 100 MB


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
    positions = _list_positions(bitext, is_common)
    pairs, positions_of_pairs = _pair_tokens(bitext, positions, num_sources, len(is_common))
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    sources, targets = np.divmod(pairs[first], len(is_common) + 1)
    repeats = np.diff(first, append=len(pairs))
    del pairs
    probabilities = np.ones(len(first), np.float32)
    for _ in tqdm(range(ITERATIONS), desc="aligning", leave=False, disable=None):
        totals = np.bincount(
            positions_of_pairs, np.repeat(probabilities, repeats), len(positions.targets)
        )
        shares = (positions.weights / totals).astype(np.float32)
        counts = np.add.reduceat(shares[positions_of_pairs], first) * probabilities
        probabilities = (counts / np.bincount(sources, counts)[sources]).astype(np.float32)
    is_entry = (sources < num_sources) & (targets < len(is_common))
    return Lexicon(sources[is_entry], targets[is_entry], probabilities[is_entry])


@dataclass(frozen=True)
class _Positions:
    """Target tokens, each in its sentence. What is common in a sentence is one of them, of the id
    behind the vocabulary, and weighs as many as there are.
    """

    sentences: Array
    targets: Array
    weights: Array


def _list_positions(bitext: Bitext, is_common: Array) -> _Positions:
    target, length = bitext.target, bitext.target.lengths
    is_short = (length <= LONGEST) & (bitext.source.lengths <= LONGEST)
    sentences = np.repeat(np.arange(len(bitext)), length)
    is_rare = ~is_common[target.ids]
    rare = np.flatnonzero(is_rare & is_short[sentences])
    num_common = np.bincount(sentences[~is_rare], minlength=len(bitext)) * is_short
    common = np.flatnonzero(num_common)
    return _Positions(
        np.concatenate([sentences[rare], common]),
        np.concatenate([target.ids[rare], np.full(len(common), len(is_common))]),
        np.concatenate([np.ones(len(rare)), num_common[common]]).astype(np.float32),
    )


def _pair_tokens(
    bitext: Bitext, positions: _Positions, num_sources: int, num_targets: int
) -> tuple[Array, Array]:
    """Every source token with every place of its translation, and with it a word that stands for
    none: keys i64, ascending, and positions i32.
    """
    num_positions = len(positions.targets)
    lengths = bitext.source.lengths[positions.sentences] + 1
    ends = np.cumsum(lengths)
    packed = np.empty(int(lengths.sum()), np.int64)
    ids = np.append(bitext.source.ids, num_sources)
    for start in range(0, num_positions, PART):
        part = slice(start, start + PART)
        repeats = lengths[part]
        begin, last = ends[start] - lengths[start], np.cumsum(repeats)
        within = np.arange(last[-1]) - np.repeat(last - repeats, repeats)
        sources = ids[within + np.repeat(bitext.source.starts[positions.sentences[part]], repeats)]
        sources[last - 1] = num_sources
        keys = sources * (num_targets + 1) + np.repeat(positions.targets[part], repeats)
        numbers = np.arange(start, start + len(repeats))
        packed[begin : begin + last[-1]] = keys * num_positions + np.repeat(numbers, repeats)
    packed.sort()
    keys = packed // num_positions
    return keys, (packed - keys * num_positions).astype(np.int32)
