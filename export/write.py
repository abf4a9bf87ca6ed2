"""Writes a bundle folder: graphs, their shared weights, tokenizer, model card and manifest.

The folder appears whole or not at all: everything is written beside it under a temporary name,
checked by opening it, and renamed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir

from export.model import ExportedModel
from models.checkpoint import Checkpoint, CheckpointError
from serving.bundle.manifest import (
    FORMAT_VERSION,
    TOKENIZER_FILE,
    Manifest,
    Precision,
    Task,
)
from serving.bundle.opening import open_bundle
from serving.bundle.writing import seal

WEIGHTS_FILE = "weights.bin"
CARD_FILE = "README.md"
QUALITY_FILE = "quality.json"
SMALL_BYTES = 1024  # tensors up to this size stay in the graph's own file
ALIGNMENT = 4096  # of large tensors, so that ONNX Runtime can map them


class WeightFile:
    """One file of large tensors for all graphs of a bundle; equal tensors are stored once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / WEIGHTS_FILE).open("wb")
        self._offsets: dict[tuple[str, bytes], int] = {}

    def close(self) -> None:
        self._file.close()

    def externalise(self, model: ir.Model) -> None:
        """Move the model's large initializers into this file."""
        for value in model.graph.initializers.values():
            if value.const_value.nbytes > SMALL_BYTES:
                value.const_value = self._store(value.const_value)

    def _store(self, tensor: ir.TensorProtocol) -> ir.ExternalTensor:
        data = tensor.tobytes()
        key = (tensor.dtype.name, hashlib.sha256(data).digest())
        if key not in self._offsets:
            self._file.seek(-self._file.tell() % ALIGNMENT, os.SEEK_CUR)
            self._offsets[key] = self._file.tell()
            self._file.write(data)
        return ir.ExternalTensor(
            WEIGHTS_FILE,
            self._offsets[key],
            len(data),
            tensor.dtype,
            shape=tensor.shape,
            name=tensor.name,
            base_dir=self._folder,
        )


def write_bundle(
    folder: Path, checkpoint: Checkpoint, model: ExportedModel, precision: Precision, name: str
) -> None:
    """Fill ``folder`` with a complete bundle, without a verification report."""
    weights = WeightFile(folder)
    with contextlib.closing(weights):
        for graph in model.graphs:
            onnx_model = graph.model
            weights.externalise(onnx_model)
            ir.save(onnx_model, folder / f"{graph.name}.onnx")
    shutil.copyfile(checkpoint.tokenizer_path, folder / TOKENIZER_FILE)
    seal(folder, manifest_of(checkpoint, model, precision, name))


def manifest_of(
    checkpoint: Checkpoint, model: ExportedModel, precision: Precision, name: str
) -> Manifest:
    config = checkpoint.config
    task = Task(config.task)
    is_translation = task is Task.TRANSLATE
    return Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        task=task,
        architecture=config.architecture,
        precision=precision,
        source_languages=config.source_languages if is_translation else config.languages,
        target_languages=config.target_languages if is_translation else config.languages,
        tokens=model.tokens,
        limits=model.limits,
        graphs={graph.name: graph.spec(f"{graph.name}.onnx") for graph in model.graphs},
        states=model.states,
        window=model.window,
        files={},
        quality=read_quality(checkpoint.folder),
    )


def read_quality(folder: Path) -> dict[str, Any]:
    """What training measured: the checkpoint's ``quality.json``, if it has one."""
    path = folder / QUALITY_FILE
    if not path.is_file():
        return {}
    try:
        quality = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(folder, [f"{QUALITY_FILE} is not JSON: {error}"]) from None
    if not isinstance(quality, dict):
        raise CheckpointError(folder, [f"{QUALITY_FILE} is not an object"])
    return quality


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside ``folder`` that takes its place when the block succeeds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        open_bundle(temporary)
        _replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(new: Path, old: Path) -> None:
    """Rename ``new`` to ``old``; an earlier bundle of that name makes way first."""
    if old.exists():
        retired = Path(tempfile.mkdtemp(prefix=f".{old.name}.", dir=old.parent))
        old.rename(retired / old.name)
        new.rename(old)
        shutil.rmtree(retired)
    else:
        new.rename(old)
