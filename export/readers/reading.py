"""Reads a checkpoint of any known format, which is recognised by the files themselves."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from export.readers.chat_ends import add_end_of_answer
from export.readers.chat_translators import recognise_translator
from export.readers.common.options import read_options
from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.gguf import reader as gguf
from export.readers.hugging_face import families
from export.readers.marian import folder as marian_folder
from export.readers.marian import reader as marian
from export.readers.toolkits import fairseq, joeynmt, opennmt, sockeye
from models import checkpoint
from models.checkpoint import CONFIG_FILE, Checkpoint, CheckpointError

TORCH_SUFFIXES = (".pt", ".pth")
REFUSALS = {  # of options that a format does not take
    "context_length": "the context length of {} cannot be changed",
    "adapters": "adapters are merged into Hugging Face folders only, not into {}",
}
HINTS = {  # by what is in a folder of no known format
    "adapter_config.json": "it holds an adapter: export its base model, with --adapter",
    "*.gguf": "it holds .gguf files: export one of them, not the folder",
    "snapshots/*/config.json": "it is a cache of the hub: export a folder in its snapshots",
}


class CheckpointFormat(NamedTuple):
    """A format of checkpoints and how it is read.

    can_read: whether a source is of this format; cheap, and never raises.
    read_checkpoint: raises CheckpointError with every problem.
    takes: the names of the options that `read_checkpoint` takes beside the source.
    """

    name: str
    can_read: Callable[[Path], bool]
    read_checkpoint: Callable[..., Checkpoint]
    takes: frozenset[str] = frozenset()


def can_read_torch(source: Path) -> bool:
    """Return whether the source is a file of torch.save, or a folder with one."""
    path = _find_torch_file(source)
    return path is not None and is_torch_file(path)


def read_torch_checkpoint(source: Path) -> Checkpoint:
    """Read a checkpoint of torch.save, its weights still unread.

        {"model": weights, "generator": weights, "vocab": words, "opt": options}      OpenNMT-py
        {"vocab": words, "opt": options}, and weights in safetensors beside it        OpenNMT-py
        {"model": weights, "args" or "cfg": options, ...}                             fairseq

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
    contents = f"found {', '.join(sorted(keys)[:10])}" if keys else "found no names"
    raise CheckpointError(path, [f"it is no checkpoint of OpenNMT-py or fairseq: {contents}"])


def _find_torch_file(source: Path) -> Path | None:
    if source.is_file():
        return source
    if not source.is_dir():
        return None
    paths = [path for path in source.iterdir() if path.suffix in TORCH_SUFFIXES and path.is_file()]
    return paths[0] if len(paths) == 1 else None


FORMATS = (
    CheckpointFormat(
        "a checkpoint folder of our own", checkpoint.is_checkpoint, checkpoint.load_checkpoint
    ),
    CheckpointFormat(
        "a Hugging Face folder", families.can_read, families.read_checkpoint, frozenset(REFUSALS)
    ),
    CheckpointFormat(
        "a GGUF file", gguf.can_read, gguf.read_checkpoint, frozenset({"context_length"})
    ),
    CheckpointFormat(
        "a folder of Marian or Bergamot", marian_folder.can_read, marian.read_checkpoint
    ),
    CheckpointFormat("a folder of JoeyNMT", joeynmt.can_read, joeynmt.read_checkpoint),
    CheckpointFormat("a folder of Sockeye", sockeye.can_read, sockeye.read_checkpoint),
    CheckpointFormat(
        "a checkpoint of OpenNMT-py or fairseq", can_read_torch, read_torch_checkpoint
    ),
)


def read_model(
    source: Path, context_length: int | None = None, adapters: Sequence[Path] = ()
) -> Checkpoint:
    """Read a file or folder, a language model for texts of up to `context_length` tokens, with the
    adapters of these folders merged. Raises CheckpointError with every problem.
    """
    if not source.exists():
        raise CheckpointError(source, ["there is no such file or folder"])
    options: dict[str, Any] = {"context_length": context_length, "adapters": adapters}
    options = {name: value for name, value in options.items() if value}
    for checkpoint_format in FORMATS:
        if checkpoint_format.can_read(source):
            refused = [name for name in options if name not in checkpoint_format.takes]
            if refused:
                problems = [REFUSALS[name].format(checkpoint_format.name) for name in refused]
                raise CheckpointError(source, problems)
            model = checkpoint_format.read_checkpoint(source, **options)
            return recognise_translator(add_end_of_answer(model))
    raise CheckpointError(source, _explain_unknown(source))


def _explain_unknown(source: Path) -> list[str]:
    """Return why a source is not known: the problems of its `config.json`, if it has one."""
    path, problems = source / CONFIG_FILE, list[str]()
    if source.is_dir() and os.path.lexists(path):
        read_options(path, problems)
        nameless = f"{CONFIG_FILE} names neither an `architecture` of ours nor a `model_type`"
        return problems or [nameless]
    if hints := [hint for files, hint in HINTS.items() if any(source.glob(files))]:
        return hints[:1]
    names = ", ".join(checkpoint_format.name for checkpoint_format in FORMATS)
    return [f"is none of the known formats: {names}"]
