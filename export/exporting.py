"""From a checkpoint to a bundle: the one function that the command and the tests call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from export import bahdanau, llama, transformer
from export.model import ExportedModel
from export.weights import Weights
from export.write import atomic_folder, write_bundle
from models.checkpoint import Checkpoint
from serving.bundle.manifest import Precision

BUILDERS: dict[str, Callable[[Any, Weights, Precision], ExportedModel]] = {
    "bahdanau": bahdanau.build,
    "llama": llama.build,
    "transformer": transformer.build,
}


def build_model(checkpoint: Checkpoint, precision: Precision) -> ExportedModel:
    """The graphs and states of a checkpoint. Raises CheckpointError with all its problems."""
    weights = Weights(checkpoint.weights)
    model = BUILDERS[checkpoint.config.architecture](checkpoint.config, weights, precision)
    weights.finish(checkpoint.folder)
    return model


def export_checkpoint(
    checkpoint: Checkpoint, folder: Path, precision: Precision, name: str | None = None
) -> None:
    """Write a bundle of the checkpoint to ``folder``, whole or not at all."""
    model = build_model(checkpoint, precision)
    with atomic_folder(folder) as temporary:
        write_bundle(temporary, checkpoint, model, precision, name or checkpoint.folder.name)
