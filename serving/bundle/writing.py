"""Seals a folder as a bundle: writes ``bundle.json`` with the checksum of every file beside it."""

import dataclasses
import json
from pathlib import Path

from serving.bundle.manifest import MANIFEST_FILE, Manifest
from serving.bundle.opening import sha256_of
from serving.bundle.reading import to_json


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with fresh checksums of the files in ``folder``; return it."""
    paths = sorted(path for path in folder.iterdir() if path.name != MANIFEST_FILE)
    sealed = dataclasses.replace(manifest, files={path.name: sha256_of(path) for path in paths})
    document = to_json(sealed)
    if sealed.encoder is None:  # older servers read what other tasks write
        del document["encoder"]
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")
    return sealed
