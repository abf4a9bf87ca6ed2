"""Looks up which target tokens may translate a source, in a bundle's `shortlist.safetensors`.

The file holds `always`, the ids that are on every shortlist (i32), and of source id i the
`candidates` from `offsets[i]` to `offsets[i + 1]` (i32; i64 [source ids + 1]).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from serving.bundle.opening import Bundle
from serving.errors import BundleError
from serving.requests.parameters import TokenIds
from serving.requests.request import Ids

NAMES = {"always", "offsets", "candidates"}


class Shortlist:
    """Holds the lexical shortlists of one bundle."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        """Raises BundleError with all that is wrong with the file."""
        try:
            tables = load_file(path)
        except (OSError, SafetensorError) as error:
            raise BundleError(path.parent, [f"{path.name}: {error}"]) from None
        problems = [f"{path.name}: {problem}" for problem in _problems(tables, vocab_size)]
        if problems:
            raise BundleError(path.parent, problems)
        self._vocab_size = vocab_size
        self._always = tables["always"].astype(np.int64)
        self._offsets: list[int] = tables["offsets"].tolist()
        self._candidates = tables["candidates"].astype(np.int64)

    @classmethod
    def load(cls, bundle: Bundle) -> "Shortlist | None":
        """Read a bundle's shortlists; None for one that always scores its whole vocabulary.

        Raises BundleError.
        """
        manifest = bundle.manifest
        return cls(bundle.shortlist_path, manifest.vocab_size) if manifest.has_shortlist else None

    def tokens_for(self, source_ids: TokenIds) -> Ids:
        """Return the tokens that may translate a source, ascending, each once: whatever else is
        asked of the translation.
        """
        offsets, candidates = self._offsets, self._candidates
        parts = [candidates[offsets[i] : offsets[i + 1]] for i in {*source_ids}]
        is_there = np.zeros(self._vocab_size, bool)
        is_there[np.concatenate([self._always, *parts])] = True
        return np.flatnonzero(is_there)


def _problems(tables: dict[str, Ids], vocab_size: int) -> Iterator[str]:
    if tables.keys() != NAMES:
        yield f"has {sorted(tables)}, expected {sorted(NAMES)}"
        return
    for name, table in tables.items():
        if table.ndim != 1 or not np.issubdtype(table.dtype, np.integer):
            yield f"{name} is {table.dtype} {list(table.shape)}, expected a row of integers"
            return
    offsets, candidates = tables["offsets"], tables["candidates"]
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(candidates):
        yield "offsets do not go from 0 to the number of candidates"
    elif (np.diff(offsets) < 0).any():
        yield "offsets do not ascend"
    for name in ("always", "candidates"):
        ids = tables[name]
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
            yield f"{name} has ids outside the vocabulary of {vocab_size}"
