"""Makes functions from documents to scores of language models: of a bundle by its graphs, of a
checkpoint by torch.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from export.checking.rows import Rows
from models.data.prose import Nats, ProseScore, Reader, Window
from models.data.tokenizer import load_tokenizer, read_tokenizer
from models.storage.checkpoint import TOKENIZER_FILE, load_checkpoint
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.runtime.machine import available_cpus

ROWS = 32  # windows that are read side by side

ScoreProse = Callable[[list[str]], ProseScore]


def prose_scorer(folder: Path) -> ScoreProse:
    """Open the checkpoint or the bundle in `folder`. Raises CheckpointError or BundleError."""
    if (folder / "bundle.json").exists():
        return _of_bundle(open_bundle(folder))
    return _of_checkpoint(folder)


def _of_bundle(bundle: Bundle) -> ScoreProse:
    manifest = bundle.manifest
    tokenizer = load_tokenizer(bundle.folder / TOKENIZER_FILE)
    reader = Reader(tokenizer, manifest.tokens, manifest.limits.max_target_tokens)
    nats = bundle_nats(bundle)
    return lambda documents: reader.score(documents, nats)


def bundle_nats(bundle: Bundle) -> Nats:
    """Find what windows lack in probability, by a bundle's step graph."""
    prefix = list(bundle.manifest.tokens.prompt_prefix)
    opened: dict[int, Rows] = {}

    def rows_of(size: int) -> Rows:
        if size not in opened:
            opened[size] = Rows(bundle, [[]] * size, threads=available_cpus())
        opened[size].begin_anew()
        return opened[size]

    def nats(windows: Sequence[Window]) -> NDArray[np.float64]:
        starts = range(0, len(windows), ROWS)
        parts = [windows[start : start + ROWS] for start in starts]
        with tqdm(parts, desc="reading", unit="windows", leave=False, disable=None) as bar:
            return np.concatenate([_read(rows_of(len(part)), prefix, part) for part in bar])

    return nats


def _read(rows: Rows, prefix: list[int], windows: Sequence[Window]) -> NDArray[np.float64]:
    """Read windows, alike, side by side and token by token: graphs take several tokens at once of
    one row alone, and of recurrent models never.
    """
    every, lost = np.arange(len(windows)), []
    columns = [[token] * len(windows) for token in prefix]
    columns += map(list, zip(*(each.token_ids for each in windows), strict=True))
    first = len(prefix) + windows[0].num_known
    for place, (column, following) in enumerate(pairwise(columns), 1):
        logp = rows.read([[token] for token in column])
        if place >= first:
            lost.append(-logp[every, following].astype(np.float64))
    return np.stack(lost, 1)


def _of_checkpoint(folder: Path) -> ScoreProse:
    from models.decoding.forced import nats
    from models.loading import load_module

    checkpoint = load_checkpoint(folder)
    module, tokenizer = load_module(checkpoint), read_tokenizer(checkpoint.tokenizer)
    config: Any = checkpoint.config
    around = checkpoint.conventions
    reader = Reader(tokenizer, around, config.context_length)
    return lambda documents: reader.score(
        documents, lambda windows: nats(module, windows, around.prompt_prefix)
    )
