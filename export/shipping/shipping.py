"""Stores a checkpoint, exports it as it is served, scores that, and completes the card."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from export.bundling.exporting import export_checkpoint
from export.shipping.card import completed
from export.shipping.scores import Bundles, Found, of_prose, of_translations
from models.storage.checkpoint import (
    CARD_FILE,
    CURVE_FILE,
    QUALITY_FILE,
    WORDS_FILE,
    load_checkpoint,
    save_checkpoint,
)
from models.storage.safetensors import Storage
from serving.bundle.manifest import Precision


@dataclass(frozen=True)
class Sources:
    """Where scores come from. sets: the folder of made sets and everyday sentences."""

    recipe: Path
    data: Path
    sets: Path


SCORERS: dict[str, Callable[[Bundles, Sources], Found]] = {
    "translate": lambda bundles, s: of_translations(bundles, s.recipe, s.data, s.sets),
    "generate": lambda bundles, s: of_prose(bundles, s.recipe, s.data),
}


def ship_checkpoint(source: Path, output: Path, storage: Storage, sources: Sources) -> str:
    """Fill the folder `output`; returns the scores in Markdown.

    Raises CheckpointError, ConfigError, AttendantError, OSError and ValueError.
    """
    if source.resolve() == output.resolve():
        raise ValueError(f"{output} is what is to be shipped: name another folder")
    trained = load_checkpoint(source)
    if trained.config.task not in SCORERS:
        raise ValueError(f"{source} only encodes: shipped are models that translate or write")
    save_checkpoint(output, trained.config, trained.weights, trained.tokenizer, storage)
    if WORDS_FILE in trained.files:
        (output / WORDS_FILE).write_bytes(trained.files[WORDS_FILE])
    with _exported(source, output) as bundles:
        found = SCORERS[trained.config.task](bundles, sources)
        for name, draw in found.pictures.items():
            draw(output / name)
    if (source / CURVE_FILE).is_file():
        shutil.copyfile(source / CURVE_FILE, output / CURVE_FILE)
    card = trained.files.get(CARD_FILE, b"").decode() or f"# {output.name}\n"
    command = f"attendant ship CHECKPOINT -o {output} --weights {storage} --recipe {sources.recipe}"
    text = completed(card, found.markdown, storage, command)
    (output / CARD_FILE).write_text(text, encoding="utf-8")
    quality = json.dumps(found.quality, indent=2, ensure_ascii=False)
    (output / QUALITY_FILE).write_text(f"{quality}\n", encoding="utf-8")
    return found.markdown


@contextmanager
def _exported(source: Path, stored: Path) -> Iterator[Bundles]:
    """Bundles for as long as they are scored: of what is stored, and of what was trained."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kinds = {
            "int8": (stored, Precision.INT8),
            "fp32": (stored, Precision.FP32),
            "trained": (source, Precision.FP32),
        }
        for name, (checkpoint, precision) in kinds.items():
            export_checkpoint(load_checkpoint(checkpoint), folder / name, precision)
        yield Bundles(*(folder / name for name in kinds))
