"""A parallel corpus in a model's own tokens, in a few flat arrays."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from export.graph.writer import Array
from models.checkpoint import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, Checkpoint
from models.data.corpus import SentencePair
from serving.text.tokenizer import Tokenizer

BATCH = 4096  # texts encoded at once


@dataclass(frozen=True)
class Sentences:
    """ids: i64, of all sentences one behind the other. lengths: i64 [sentences]."""

    ids: Array
    lengths: Array

    @property
    def starts(self) -> Array:
        return np.cumsum(self.lengths) - self.lengths

    def of(self, number: int) -> Array:
        start = self.starts[number]
        return self.ids[start : start + self.lengths[number]]

    def only(self, is_wanted: Array) -> "Sentences":
        """is_wanted: bool [sentences]."""
        return Sentences(self.ids[np.repeat(is_wanted, self.lengths)], self.lengths[is_wanted])


@dataclass(frozen=True)
class Bitext:
    """Sentences and their translations, in the same order."""

    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source.lengths)

    def split(self, is_first: Array) -> tuple["Bitext", "Bitext"]:
        """is_first: bool [sentences]."""
        first, second = (
            Bitext(self.source.only(each), self.target.only(each)) for each in (is_first, ~is_first)
        )
        return first, second


def tokenizers_of(checkpoint: Checkpoint) -> tuple[Tokenizer, Tokenizer]:
    """Read the tokenizers of source and target as the service does."""
    config = checkpoint.config
    source_size = getattr(config, "source_vocab_size", None) or config.vocab_size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER_FILE
        path.write_text(checkpoint.tokenizer, encoding="utf-8")
        target = Path(folder) / TARGET_TOKENIZER_FILE
        target.write_text(checkpoint.target_tokenizer, encoding="utf-8")
        return Tokenizer(path, source_size), Tokenizer(target, config.vocab_size)


def encoded(pairs: Sequence[SentencePair], source: Tokenizer, target: Tokenizer) -> Bitext:
    with tqdm(total=2 * len(pairs), desc="reading", unit="text", leave=False, disable=None) as bar:
        return Bitext(
            _encoded([pair.source for pair in pairs], source, bar.update),
            _encoded([pair.target for pair in pairs], target, bar.update),
        )


def _encoded(
    texts: Sequence[str], tokenizer: Tokenizer, progress: Callable[[int], object]
) -> Sentences:
    ids: list[Array] = []
    lengths: list[int] = []
    for start in range(0, len(texts), BATCH):
        rows = tokenizer.encode_batch([text.strip() for text in texts[start : start + BATCH]])
        lengths += map(len, rows)
        ids.append(np.array([token_id for row in rows for token_id in row], np.int64))
        progress(len(rows))
    return Sentences(np.concatenate(ids), np.array(lengths, np.int64))


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
