"""Packages of Argos Translate with small random models."""

import json
import zipfile
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from tests.export.readers.common.sentencepiece_models import trained
from tests.export.readers.ctranslate2.specs import save_translator
from tests.tiny import tiny_checkpoint

SPECIAL = ("<unk>", "<s>", "</s>")
README = "# English-French\n\nLicence: CC0, trained with OPUS.\n"
NUM_LEFT_OUT = 40  # pieces that were too rare for the vocabulary


def write_package(
    folder: Path, source: str = "en", target: str = "fr", seed: int = 0, **metadata: Any
) -> Path:
    """Write an unpacked package below the folder, as Argos Translate installs it."""
    package = folder / f"translate-{source}_{target}-1_0"
    package.mkdir(parents=True)
    pieces = trained()
    (package / "sentencepiece.model").write_bytes(pieces)
    words = list_pieces(pieces)[:-NUM_LEFT_OUT]
    prefix = metadata.get("target_prefix")
    vocabulary = [*words, *([prefix] if prefix else [])]
    size = len(vocabulary) + len(vocabulary) % 2
    vocabulary += [f"madeupword{i}" for i in range(size - len(vocabulary))]
    checkpoint = tiny_checkpoint("transformer", folder / f"tiny-{seed}", seed, vocab_size=size)
    save_translator(checkpoint, package / "model", "int8", vocabulary=vocabulary)
    entries = {"package_version": "1.0", "argos_version": "1.9", "from_code": source}
    entries |= {"to_code": target, "from_name": "English", "to_name": "French"}
    (package / "metadata.json").write_text(json.dumps(entries | metadata))
    (package / "README.md").write_text(README)
    (package / "stanza").mkdir()
    (package / "stanza" / "resources.json").write_text("{}")
    return package


def list_pieces(pieces: bytes) -> list[str]:
    processor = SentencePieceProcessor(model_proto=pieces)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def pack(package: Path) -> Path:
    """Make the zip archive of a folder, as it is published."""
    archive = package.with_suffix(".argosmodel")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            file.write(path, path.relative_to(package.parent))
    return archive
