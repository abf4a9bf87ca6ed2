"""Checkpoints of torch.save: those of OpenNMT-py, fairseq and openai/whisper, which what they hold
tells apart.
"""

from pathlib import Path

from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.toolkits import fairseq, openai_whisper, opennmt
from models.checkpoint import Checkpoint, CheckpointError

TORCH_SUFFIXES = (".pt", ".pth")


def can_read(source: Path) -> bool:
    """Return whether the source is a file of torch.save, or a folder with one."""
    path = _find_torch_file(source)
    return path is not None and is_torch_file(path)


def read_checkpoint(source: Path) -> Checkpoint:
    """Read a checkpoint of torch.save, its weights still unread.

        {"model": weights, "generator": weights, "vocab": words, "opt": options}      OpenNMT-py
        {"vocab": words, "opt": options}, and weights in safetensors beside it        OpenNMT-py
        {"model": weights, "args" or "cfg": options, ...}                             fairseq
        {"dims": sizes, "model_state_dict": weights}                          openai/whisper

    The source is the file, or a folder that holds one such file. Raises CheckpointError with every
    problem.
    """
    path = _find_torch_file(source)
    if path is None:
        raise CheckpointError(source, ["it holds no checkpoint, or several"])
    tree = read_torch(path, opennmt.NAMES | fairseq.NAMES)
    keys = set(map(str, tree)) if isinstance(tree, dict) else set()
    has_weights_beside = {"vocab", "opt"} <= keys and opennmt.find_shards(path)
    if {"model", "generator", "opt"} <= keys or has_weights_beside:
        return opennmt.read_checkpoint(path, tree, source)
    if "model" in keys and keys & {"args", "cfg"}:
        return fairseq.read_checkpoint(path, tree, source)
    if {"dims", "model_state_dict"} <= keys:
        return openai_whisper.read_checkpoint(path, tree)
    contents = f"found {', '.join(sorted(keys)[:10])}" if keys else "found no names"
    raise CheckpointError(
        path, [f"it is no checkpoint of OpenNMT-py, fairseq or openai/whisper: {contents}"]
    )


def _find_torch_file(source: Path) -> Path | None:
    if source.is_file():
        return source
    if not source.is_dir():
        return None
    paths = [path for path in source.iterdir() if path.suffix in TORCH_SUFFIXES and path.is_file()]
    return paths[0] if len(paths) == 1 else None
