"""Averages the weights of checkpoints of one shape (model soups, Wortsman et al. 2022).

Runs that went on from the same weights lie close together: what one of them forgot comes back, and
what another learned stays.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.arrays import Array
from models.storage.checkpoint import (
    QUALITY_FILE,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)


def average_checkpoints(folders: Sequence[Path], shares: Sequence[float], output: Path) -> None:
    """Write the average of all weights; the rest is of the last checkpoint, without its figures.

    folders: two at least, of one shape and one vocabulary.
    shares: one of each, above 0; only what they are to each other matters.
    Raises CheckpointError for a folder that is none or does not fit the last, and OSError.
    """
    last = load_checkpoint(folders[-1])
    total = sum(shares)
    weights = {name: np.zeros_like(weight) for name, weight in last.weights.items()}
    for folder, share in zip(folders, shares, strict=True):
        checkpoint = load_checkpoint(folder)
        _check_fits(checkpoint, last)
        for name, weight in checkpoint.weights.items():
            weights[name] += np.float32(share / total) * weight
    _save(output, last, weights)


def _check_fits(checkpoint: Checkpoint, last: Checkpoint) -> None:
    """Dropout may differ: it is no part of what was trained."""
    one, other = (each.config.model_dump(exclude={"dropout"}) for each in (checkpoint, last))
    wrong = [
        f"{key} is {one.get(key)}, of {last.folder} it is {other.get(key)}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]
    if not wrong and _shapes(checkpoint) != _shapes(last):
        wrong = [f"its weights have other names or shapes than those of {last.folder}"]
    if checkpoint.tokenizer != last.tokenizer:
        wrong.append(f"it has another tokenizer than {last.folder}")
    if wrong:
        raise CheckpointError(checkpoint.folder, wrong)


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in checkpoint.weights.items()}


def _save(output: Path, last: Checkpoint, weights: dict[str, Array]) -> None:
    save_checkpoint(output, last.config, weights, last.tokenizer)
    for name in last.files.keys() - {QUALITY_FILE}:
        (output / name).write_bytes(last.files[name])
