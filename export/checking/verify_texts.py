"""Compares a bundle that only encodes with the torch module it came from, text by text."""

from pathlib import Path

import numpy as np

from export.checking.parity import VectorError, VectorParity
from export.checking.texts import ROWS, Ids, TextGraph
from models.configs.encoder import EncoderConfig
from models.data.corpus import read_text
from models.data.labels import framed
from models.data.tokenizer import encode_all, read_tokenizer
from models.evaluation.vectors import vectors_of
from models.loading import load_encoder
from models.storage.checkpoint import Checkpoint
from serving.bundle.manifest import Task
from serving.bundle.opening import Bundle

RANDOM_LENGTH = 24


class TextVerifier:
    """Gives both sides the same texts."""

    def __init__(self, checkpoint: Checkpoint, bundle: Bundle) -> None:
        assert isinstance(checkpoint.config, EncoderConfig)
        self._config, self._bundle = checkpoint.config, bundle
        self._module = load_encoder(checkpoint)
        self._tokenizer = read_tokenizer(checkpoint.tokenizer)

    def compare(self, test_file: Path | None, num_texts: int) -> VectorParity:
        """Compare on random ids, and on the first lines of ``test_file`` if there is one."""
        is_embedding = self._bundle.manifest.task is Task.EMBED
        name = "embeddings" if is_embedding else "logits"
        random_ids = self._compare(*self._random_texts())
        if test_file is None:
            return VectorParity(name, random_ids)
        lines = [line for line in read_text(test_file).splitlines() if line.strip()][:num_texts]
        if not lines:
            raise ValueError(f"{test_file}: holds no text to compare on")
        tokens, longest = self._bundle.manifest.tokens, self._config.max_source_tokens
        rows = framed(encode_all(self._tokenizer, lines), tokens, longest)
        return VectorParity(name, random_ids, self._compare(rows, [[0] * len(r) for r in rows]))

    def _random_texts(self) -> tuple[Ids, Ids]:
        """Draw ids and, as if they were pairs, segments."""
        random = np.random.default_rng(0)
        longest = min(RANDOM_LENGTH, self._config.max_source_tokens)
        lengths = random.integers(1, longest + 1, ROWS).tolist()
        size, pad = self._config.vocab_size, self._config.pad_id
        rows = [random.choice(np.delete(np.arange(size), pad), length) for length in lengths]
        types = [np.arange(length) >= random.integers(1, longest) for length in lengths]
        return [row.tolist() for row in rows], [each.astype(int).tolist() for each in types]

    def _compare(self, rows: Ids, types: Ids) -> VectorError:
        before = np.stack(vectors_of(self._module, rows, types))
        parts = [slice(start, start + ROWS) for start in range(0, len(rows), ROWS)]
        graph = TextGraph(self._bundle)
        found = [graph.run(rows[part], types[part]) for part in parts]
        after = np.concatenate([array for outputs in found for array in outputs.values()])
        difference = np.abs(before - after)
        return VectorError(float(difference.max()), float(difference.mean()), len(rows))
