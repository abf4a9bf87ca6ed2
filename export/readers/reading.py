"""Reads a checkpoint of any known format, which is recognised by the files themselves.

A format's reader is imported when it is asked whether it can read a source.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from export.readers.chat_ends import add_end_of_answer
from export.readers.chat_translators import recognise_translator
from export.readers.common.options import read_options
from models.checkpoint import CONFIG_FILE, Checkpoint, CheckpointError

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

    detector, reader: module and function. The first says whether a source is of this format; it is
    cheap, and never raises. The second returns its checkpoint, or raises CheckpointError with every
    problem.
    takes: the names of the options that the reader takes beside the source.
    """

    name: str
    detector: str
    reader: str
    takes: frozenset[str] = frozenset()

    def can_read(self, source: Path) -> bool:
        return bool(_import_function(self.detector)(source))

    def read_checkpoint(self, source: Path, **options: Any) -> Checkpoint:
        checkpoint: Checkpoint = _import_function(self.reader)(source, **options)
        return checkpoint


def _import_function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# In the order in which they are asked, until one can read the source.
FORMATS = (
    CheckpointFormat(
        "a checkpoint folder of our own",
        "models.checkpoint:is_checkpoint",
        "models.checkpoint:load_checkpoint",
    ),
    CheckpointFormat(
        "a Hugging Face folder",
        "export.readers.hugging_face.families:can_read",
        "export.readers.hugging_face.families:read_checkpoint",
        frozenset(REFUSALS),
    ),
    CheckpointFormat(
        "a GGUF file",
        "export.readers.gguf.reader:can_read",
        "export.readers.gguf.reader:read_checkpoint",
        frozenset({"context_length"}),
    ),
    CheckpointFormat(
        "a file of whisper.cpp",
        "export.readers.gguf.whisper_cpp:can_read",
        "export.readers.gguf.whisper_cpp:read_checkpoint",
    ),
    CheckpointFormat(
        "a model of CTranslate2 or a package of Argos Translate",
        "export.readers.ctranslate2.reader:can_read",
        "export.readers.ctranslate2.reader:read_checkpoint",
        frozenset({"context_length"}),
    ),
    CheckpointFormat(
        "a folder of Marian or Bergamot",
        "export.readers.marian.folder:can_read",
        "export.readers.marian.reader:read_checkpoint",
    ),
    CheckpointFormat(
        "a folder of JoeyNMT",
        "export.readers.toolkits.joeynmt:can_read",
        "export.readers.toolkits.joeynmt:read_checkpoint",
    ),
    CheckpointFormat(
        "a folder of Sockeye",
        "export.readers.toolkits.sockeye:can_read",
        "export.readers.toolkits.sockeye:read_checkpoint",
    ),
    CheckpointFormat(
        "a checkpoint of OpenNMT-py, fairseq or openai/whisper",
        "export.readers.toolkits.torch_checkpoint:can_read",
        "export.readers.toolkits.torch_checkpoint:read_checkpoint",
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
