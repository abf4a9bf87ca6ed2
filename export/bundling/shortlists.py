"""A model with lexical shortlists, learned from a parallel corpus when it is exported."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from export.bundling.bitext import Bitext, encode_pairs, read_tokenizers
from export.bundling.lexicon import ITERATIONS, Lexicon, learn_lexicon
from export.graph.writer import Array
from models.checkpoint import CARD_FILE, QUALITY_FILE, Checkpoint, CheckpointError
from models.configs.base import TranslationModelConfig
from models.data.corpus import SentencePair, read_pairs
from models.errors import InputError
from serving.bundle.manifest import SHORTLIST_FILE
from serving.text.tokenizer import Tokenizer

MOST_PAIRS = 400_000
MOST_HELD_OUT = 2_000
FEWEST_PAIRS = 100  # of which one is held out
# A target token that is less likely stays off the list. With 2e-4 BLEU of `transformer-en-fr` fell
# by up to 0.2 of a source of a hundred sentences or more, with this by 0.1.
LEAST_PROBABILITY = 5e-5
RARE = 10  # occurrences: letters that a corpus has less often stay off the list too


@dataclass(frozen=True)
class ShortlistOptions:
    """corpus: what to learn from. num_best: targets of a source token, at most; num_frequent: the
    corpus's most frequent target tokens, which are on every list.
    """

    corpus: Path
    num_best: int = 300
    num_frequent: int = 300


@dataclass(frozen=True)
class ShortlistFigures:
    """Describes what the lists are like, on pairs that they were not learned from.

    recall: the share of the references' tokens that are on their sentences' lists.
    """

    num_pairs: int
    num_held_out: int
    num_always: int
    mean_size: float
    recall: float
    vocab_size: int

    def as_markdown(self, options: ShortlistOptions) -> str:
        return f"""## Shortlists

Of each sentence only the tokens on its lexical shortlist are scored. Learned by IBM Model 1 ({ITERATIONS}
iterations) from {self.num_pairs:,} sentence pairs of `{options.corpus.name}`: of each source token up to
{options.num_best} targets of a probability of {LEAST_PROBABILITY:g} or more and those spelled like it; on every list {self.num_always:,} tokens:
the {options.num_frequent} most frequent, what ends a text, digits, signs, single letters and bytes.

On {self.num_held_out:,} pairs held out, a list has {self.mean_size:,.0f} of {self.vocab_size:,} tokens in the mean, and {self.recall:.2%} of the
references' tokens are on the lists.
"""  # noqa: E501


def with_shortlist(checkpoint: Checkpoint, options: ShortlistOptions) -> Checkpoint:
    """The same model, with shortlists and what its card and its figures say of them. One that it
    had is replaced.

    Raises CheckpointError where the model cannot have any; OSError, InputError of the corpus.
    """
    config = checkpoint.config
    if not isinstance(config, TranslationModelConfig) or config.task != "translate":
        raise CheckpointError(checkpoint.folder, ["a shortlist is for translation models"])
    if len(config.source_languages) > 1 or len(config.target_languages) > 1:
        message = "a shortlist is of one pair of languages, and this model has several"
        raise CheckpointError(checkpoint.folder, [message])
    pairs = _select_pairs(read_pairs(options.corpus), options.corpus)
    tables, figures = _learn(checkpoint, pairs, options)
    return replace(
        checkpoint,
        config=config.model_copy(update={"shortlist": True}),
        files={
            **checkpoint.files,
            SHORTLIST_FILE: tables.as_bytes(),
            CARD_FILE: _card_with(checkpoint, figures.as_markdown(options)),
            QUALITY_FILE: _quality_with(checkpoint, vars(figures)),
        },
    )


def _select_pairs(pairs: Sequence[SentencePair], path: Path) -> list[SentencePair]:
    """Return evenly spread pairs, as many as are learned from."""
    pairs = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    if len(pairs) < FEWEST_PAIRS:
        message = f"{path}: has {len(pairs)} sentence pairs, a shortlist needs {FEWEST_PAIRS}"
        raise InputError(message)
    step = max(1.0, len(pairs) / MOST_PAIRS)
    return [pairs[int(i * step)] for i in range(min(len(pairs), MOST_PAIRS))]


@dataclass(frozen=True)
class ShortlistTables:
    """The tables that `serving.text.shortlist` reads.

    always: i64, the tokens on every shortlist.
    sources, targets: i64 each, pairs sorted by source, then target.
    """

    always: Array
    sources: Array
    targets: Array
    num_sources: int

    def as_bytes(self) -> bytes:
        ends = np.cumsum(np.bincount(self.sources, minlength=self.num_sources))
        return save(
            {
                "always": self.always.astype(np.int32),
                "offsets": np.concatenate([[0], ends]),
                "candidates": self.targets.astype(np.int32),
            }
        )


def _learn(
    checkpoint: Checkpoint, pairs: list[SentencePair], options: ShortlistOptions
) -> tuple[ShortlistTables, ShortlistFigures]:
    source, target = read_tokenizers(checkpoint)
    bitext = encode_pairs(pairs, source, target)
    every = max(FEWEST_PAIRS, len(pairs) // MOST_HELD_OUT)
    held_out, learned = bitext.split(np.arange(len(pairs)) % every == 0)
    is_frequent = most_frequent(learned, checkpoint.config.vocab_size, options.num_frequent)
    always = _always_listed(checkpoint, learned, target, is_frequent)
    lexicon = learn_lexicon(learned, source.vocab_size, is_frequent)
    copies = same_spellings(source, target)
    tables = build_tables(lexicon, always, copies, options.num_best, source.vocab_size)
    size, recall = measure_shortlists(tables, held_out, checkpoint.config.vocab_size)
    sizes = len(learned), len(held_out), len(always)
    return tables, ShortlistFigures(*sizes, size, recall, checkpoint.config.vocab_size)


def _always_listed(
    checkpoint: Checkpoint, bitext: Bitext, target: Tokenizer, is_frequent: Array
) -> Array:
    """On every list, ascending: what must be possible whatever the source."""
    ids = {*np.flatnonzero(is_frequent).tolist(), *spelling_tokens(target, bitext)}
    return np.array(sorted(ids | {*checkpoint.conventions.stop}), np.int64)


def measure_shortlists(
    tables: ShortlistTables, bitext: Bitext, vocab_size: int
) -> tuple[float, float]:
    """The lists' mean size, and the share of target tokens that are on their sentences' lists."""
    ends = np.searchsorted(tables.sources, np.arange(tables.num_sources + 1))
    size = num_found = 0
    for number in range(len(bitext)):
        is_there = np.zeros(vocab_size, bool)
        is_there[tables.always] = True
        for token_id in np.unique(bitext.source.token_ids(number)):
            is_there[tables.targets[ends[token_id] : ends[token_id + 1]]] = True
        size += int(is_there.sum())
        num_found += int(is_there[bitext.target.token_ids(number)].sum())
    return size / len(bitext), num_found / len(bitext.target.ids)


def _card_with(checkpoint: Checkpoint, section: str) -> bytes:
    card = checkpoint.files.get(CARD_FILE, b"").decode() or f"# {checkpoint.name}\n"
    return f"{card.rstrip()}\n\n{section}".encode()


def _quality_with(checkpoint: Checkpoint, values: dict[str, Any]) -> bytes:
    quality = json.loads(checkpoint.files.get(QUALITY_FILE, b"{}"))
    return json.dumps({**quality, "shortlist": values}).encode()


def build_tables(
    lexicon: Lexicon, always: Array, copies: Array, num_best: int, num_sources: int
) -> ShortlistTables:
    """copies: i64 [pairs, 2], sources and targets of one spelling; they come beyond `num_best`."""
    is_likely = (lexicon.probabilities >= LEAST_PROBABILITY) & ~np.isin(lexicon.targets, always)
    parts = (lexicon.sources, lexicon.targets, lexicon.probabilities)
    sources, targets, probabilities = (part[is_likely] for part in parts)
    order = np.lexsort((-probabilities, sources))
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = np.stack([sources, targets], axis=1)[rank < num_best]
    copies = copies[~np.isin(copies[:, 1], always)]
    sources, targets = np.unique(np.concatenate([best, copies]), axis=0).T
    return ShortlistTables(always, sources, targets, num_sources)


def most_frequent(bitext: Bitext, vocab_size: int, count: int) -> Array:
    """bool [vocab]."""
    counts = np.bincount(bitext.target.ids, minlength=vocab_size)
    is_frequent = np.zeros(vocab_size, bool)
    is_frequent[np.argsort(-counts, kind="stable")[:count]] = True
    return is_frequent & (counts > 0)


def spelling_tokens(tokenizer: Tokenizer, bitext: Bitext) -> Iterable[int]:
    """List what anything can be spelled with: bytes and, where the corpus has them, single letters,
    digits and signs.
    """
    pieces = tokenizer.table.token_bytes
    counts = np.bincount(bitext.target.ids, minlength=len(pieces))
    for token_id, piece in enumerate(pieces):
        is_one = len(piece.decode("utf-8", errors="replace").strip()) == 1
        if len(piece) == 1 or (is_one and counts[token_id] >= RARE):
            yield token_id


def same_spellings(source: Tokenizer, target: Tokenizer) -> Array:
    """i64 [pairs, 2]: what names are copied by, whatever their case and the space before them."""
    ids_of: dict[bytes, list[int]] = {}
    for token_id, piece in enumerate(target.table.token_bytes):
        if key := _spelling(piece):
            ids_of.setdefault(key, []).append(token_id)
    pairs = [
        (token_id, other)
        for token_id, piece in enumerate(source.table.token_bytes)
        for other in ids_of.get(_spelling(piece), ())
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _spelling(piece: bytes) -> bytes:
    """Bytes that are no text by themselves stay what they are."""
    try:
        return piece.decode().strip().casefold().encode()
    except UnicodeDecodeError:
        return piece
