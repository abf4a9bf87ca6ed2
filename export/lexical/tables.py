"""The shortlists of a lexicon: of each source token its likeliest targets, and what is on all."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import save

from export.graph.writer import Array
from export.lexical.corpus import Bitext
from export.lexical.model1 import Lexicon
from serving.text.tokenizer import Tokenizer

# A target token that is less likely stays off the list. With 2e-4 BLEU of `transformer-en-fr` fell
# by up to 0.2 of a source of a hundred sentences or more, with this by 0.1.
LEAST_PROBABILITY = 5e-5
RARE = 10  # occurrences: letters that a corpus has less often stay off the list too


@dataclass(frozen=True)
class Tables:
    """Holds what `serving.text.shortlist` reads.

    always: i64, on every shortlist. sources, targets: i64 each, the pairs, by source then target.
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


def tables_of(
    lexicon: Lexicon, always: Array, copies: Array, num_best: int, num_sources: int
) -> Tables:
    """copies: i64 [pairs, 2], sources and targets of one spelling; they come beyond `num_best`."""
    is_likely = (lexicon.probabilities >= LEAST_PROBABILITY) & ~np.isin(lexicon.targets, always)
    parts = (lexicon.sources, lexicon.targets, lexicon.probabilities)
    sources, targets, probabilities = (each[is_likely] for each in parts)
    order = np.lexsort((-probabilities, sources))
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = np.stack([sources, targets], axis=1)[rank < num_best]
    copies = copies[~np.isin(copies[:, 1], always)]
    sources, targets = np.unique(np.concatenate([best, copies]), axis=0).T
    return Tables(always, sources, targets, num_sources)


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
