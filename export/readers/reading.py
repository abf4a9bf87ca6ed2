"""Reads whatever a user has as a checkpoint: the format is told by the files themselves."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from export.readers import torch_checkpoints
from export.readers.common.options import read_options
from export.readers.gguf import reading as gguf
from export.readers.hugging_face import families
from export.readers.joeynmt import reading as joeynmt
from export.readers.marian import folder as marian_folder
from export.readers.marian import model as marian
from export.readers.sockeye import reading as sockeye
from models.storage import checkpoint
from models.storage.checkpoint import CONFIG_FILE, Checkpoint, CheckpointError


class Format(NamedTuple):
    """looks_like: cheap, and never raises. read: raises CheckpointError with every problem.
    can_shorten: whether `read` also takes a shorter context length.
    """

    name: str
    looks_like: Callable[[Path], bool]
    read: Callable[..., Checkpoint]
    can_shorten: bool = False


FORMATS = (
    Format("a checkpoint folder of our own", checkpoint.looks_like, checkpoint.load_checkpoint),
    Format("a Hugging Face folder", families.looks_like, families.read, can_shorten=True),
    Format("a GGUF file", gguf.looks_like, gguf.read, can_shorten=True),
    Format("a folder of Marian or Bergamot", marian_folder.looks_like, marian.read),
    Format("a folder of JoeyNMT", joeynmt.looks_like, joeynmt.read),
    Format("a folder of Sockeye", sockeye.looks_like, sockeye.read),
    Format(
        "a checkpoint of OpenNMT-py or fairseq",
        torch_checkpoints.looks_like,
        torch_checkpoints.read,
    ),
)


def read_model(source: Path, context_length: int | None = None) -> Checkpoint:
    """Read a file or folder, a language model for texts of up to `context_length` tokens.

    Raises CheckpointError with every problem found.
    """
    if not source.exists():
        raise CheckpointError(source, ["there is no such file or folder"])
    for known in FORMATS:
        if known.looks_like(source):
            if context_length is None:
                return known.read(source)
            if known.can_shorten:
                return known.read(source, context_length)
            message = f"the context length of {known.name} cannot be changed"
            raise CheckpointError(source, [message])
    raise CheckpointError(source, _problems(source))


def _problems(source: Path) -> list[str]:
    """Why a source is not known: what is wrong with its `config.json`, where there is one."""
    path, problems = source / CONFIG_FILE, list[str]()
    if source.is_dir() and os.path.lexists(path):
        read_options(path, problems)
        nameless = f"{CONFIG_FILE} names neither an `architecture` of ours nor a `model_type`"
        return problems or [nameless]
    names = ", ".join(known.name for known in FORMATS)
    return [f"is none of the known formats: {names}"]
