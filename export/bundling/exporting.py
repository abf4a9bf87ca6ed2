"""Leads from a checkpoint to a bundle: build the graphs, write the files, verify, put in place."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tqdm import tqdm

from export.bundling.parity import AnyParity
from export.bundling.writer import BundleWriter, WeightFile, atomic_folder
from export.graph.blocks import NO_OUTLIERS
from export.graph.model import ExportedModel
from export.graph.select import with_select
from export.graph.weights import Weights
from export.graph.writer import Array, Store, in_memory
from models.architectures.registry import graph_builder
from models.configs.decoder_only import DecoderOnlyConfig
from models.storage.checkpoint import Checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle

Verify = Callable[[Checkpoint, Bundle], AnyParity]


def build_model(
    checkpoint: Checkpoint,
    precision: Precision,
    store: Store = in_memory,
    outliers: Mapping[str, Array] | None = NO_OUTLIERS,
) -> ExportedModel:
    """Build the graphs and states of a checkpoint, one weight after the other put into ``store``.
    Raises CheckpointError with all its problems.

    outliers: as `export.graph.weights` has them.
    """
    arrays = checkpoint.weights
    with tqdm(total=len(arrays), desc="weights", leave=False, disable=None) as bar:
        weights = Weights(arrays, checkpoint.quantised, store, bar.update, outliers)
        build = graph_builder(checkpoint.config.architecture)
        model: ExportedModel = build(checkpoint.config, weights, precision)
    weights.finish(checkpoint.folder)
    return model


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    name: str | None = None,
    verify: Verify | None = None,
) -> AnyParity | None:
    """Write a bundle of the checkpoint to ``folder``, whole or not at all.

    ``verify`` compares the written bundle with the checkpoint; what it finds goes into the card.
    """
    with atomic_folder(folder) as temporary:
        writer, bundle = _write(checkpoint, temporary, precision, name)
        parity = verify(checkpoint, bundle) if verify else None
        writer.write_card(temporary, parity)
    return parity


def _write(
    checkpoint: Checkpoint, folder: Path, precision: Precision, name: str | None
) -> tuple[BundleWriter, Bundle]:
    """Language models in int8 are written twice: first to run and tell of their outliers."""
    if precision is not Precision.INT8 or not isinstance(checkpoint.config, DecoderOnlyConfig):
        return _write_with(NO_OUTLIERS, checkpoint, folder, precision, name)
    from export.bundling.running import (
        outliers_of,  # needs ONNX Runtime, as nothing else here does
    )

    with tempfile.TemporaryDirectory(dir=folder) as inner:
        _, bundle = _write_with(None, checkpoint, Path(inner), precision, name)
        found = outliers_of(bundle)
    return _write_with(found, checkpoint, folder, precision, name)


def _write_with(
    outliers: Mapping[str, Array] | None,
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    name: str | None,
) -> tuple[BundleWriter, Bundle]:
    with contextlib.closing(WeightFile(folder)) as file:
        model = with_select(build_model(checkpoint, precision, file.store, outliers), precision)
    writer = BundleWriter(checkpoint, model, precision, name or checkpoint.name)
    return writer, writer.write(folder)
