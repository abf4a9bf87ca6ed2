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

    def token_ids(self, number: int) -> Array:
        start = self.starts[number]
        return self.ids[start : start + self.lengths[number]]

    def select(self, is_selected: Array) -> "Sentences":
        """is_selected: bool [sentences]."""
        return Sentences(self.ids[np.repeat(is_selected, self.lengths)], self.lengths[is_selected])


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
            Bitext(self.source.select(part), self.target.select(part))
            for part in (is_first, ~is_first)
        )
        return first, second


def read_tokenizers(checkpoint: Checkpoint) -> tuple[Tokenizer, Tokenizer]:
    """Read the tokenizers of source and target as the service does."""
    config = checkpoint.config
    source_size = getattr(config, "source_vocab_size", None) or config.vocab_size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER_FILE
        path.write_text(checkpoint.tokenizer, encoding="utf-8")
        target = Path(folder) / TARGET_TOKENIZER_FILE
        target.write_text(checkpoint.target_tokenizer, encoding="utf-8")
        return Tokenizer(path, source_size), Tokenizer(target, config.vocab_size)


def encode_pairs(pairs: Sequence[SentencePair], source: Tokenizer, target: Tokenizer) -> Bitext:
    with tqdm(total=2 * len(pairs), desc="reading", unit="text", leave=False, disable=None) as bar:
        return Bitext(
            _encode([pair.source for pair in pairs], source, bar.update),
            _encode([pair.target for pair in pairs], target, bar.update),
        )


def _encode(
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
