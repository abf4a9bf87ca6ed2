"""Tells which toolkit's a checkpoint of torch.save is, and reads it.

    {"model": weights, "generator": weights, "vocab": words, "opt": options}      OpenNMT-py
    {"vocab": words, "opt": options}, and weights in safetensors beside it        OpenNMT-py
    {"model": weights, "args" or "cfg": options, ...}                             fairseq

The source is the file, or a folder that holds one such file.
"""

from dataclasses import replace
from pathlib import Path

from export.readers.common.torch_files.pickles import looks_like_torch, read_torch
from export.readers.fairseq import reading as fairseq
from export.readers.opennmt import reading as opennmt
from models.storage.checkpoint import Checkpoint, CheckpointError

ENDINGS = (".pt", ".pth")


def looks_like(source: Path) -> bool:
    """Tell whether the source is a file of torch.save, or a folder with one."""
    path = _file(source)
    return path is not None and looks_like_torch(path)


def read(source: Path) -> Checkpoint:
    """Read the model, its weights still unread. Raises CheckpointError with every problem."""
    path = _file(source)
    if path is None:
        raise CheckpointError(source, ["it holds no checkpoint, or several"])
    tree = read_torch(path, opennmt.NAMES | fairseq.NAMES)
    keys = set(map(str, tree)) if isinstance(tree, dict) else set()
    if {"model", "generator", "opt"} <= keys or ({"vocab", "opt"} <= keys and opennmt.shards(path)):
        return replace(opennmt.read(path, tree), folder=source)
    if "model" in keys and keys & {"args", "cfg"}:
        return replace(fairseq.read(path, tree), folder=source)
    found = f"found {', '.join(sorted(keys)[:10])}" if keys else "found no names"
    raise CheckpointError(path, [f"it is no checkpoint of OpenNMT-py or fairseq: {found}"])


def _file(source: Path) -> Path | None:
    if source.is_file():
        return source
    if not source.is_dir():
        return None
    paths = [path for path in source.iterdir() if path.suffix in ENDINGS and path.is_file()]
    return paths[0] if len(paths) == 1 else None
