"""Where bundles are: the folders that commands search, the bundles in them, and what a path is that
is no bundle.
"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from serving.bundle.manifest import MANIFEST_FILE

BUILD_FOLDER = Path("build/bundles")
# Of trained models, by which a folder or file is told that is not exported yet.
_MODEL_FILES = (
    "*.safetensors",
    "pytorch_model*.bin",
    "model.bin",
    "*.intgemm*.bin",
    "*.npz",
    "*.gguf",
    "*.pt",
    "*.ckpt",
    "params.best",
)
_WHOLE_MODELS = ("*.argosmodel", "*.gguf", "*.pt")  # files that need no others


def bundle_folders() -> tuple[Path, Path]:
    """Return the folders with bundles: of a source tree, and of this user ($XDG_DATA_HOME/attendant
    of the XDG Base Directory Specification).
    """
    home = os.environ.get("XDG_DATA_HOME", "")
    data = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share"
    return BUILD_FOLDER, data / "attendant" / "bundles"


def find_bundles(folders: Iterable[Path]) -> list[Path]:
    """Return the bundles among the folders and right below them, of each folder by name."""
    bundles = []
    for folder in folders:
        below = sorted(path.parent for path in folder.glob(f"*/{MANIFEST_FILE}"))
        bundles += [folder] if (folder / MANIFEST_FILE).is_file() else below
    return bundles


def explain_missing_manifest(path: Path) -> str:
    """Return why a path is no bundle, and what to do: with the command, where it is a model that
    can be exported.
    """
    if not path.exists():
        return "no such folder"
    if source := _find_model(path):
        return f"a model that is not exported yet: `{_export_command(source)}` makes a bundle of it"
    if path.is_file():
        return "a file, and bundles are folders: `attendant export` writes them"
    if bundles := find_bundles([path]):
        names = " ".join(shlex.quote(str(bundle)) for bundle in bundles[:3])
        return f"a folder of bundles and none itself: name those in it, {names}"
    return f"{MANIFEST_FILE}: missing"


def _find_model(path: Path) -> Path | None:
    """Return what `attendant export` takes as SOURCE: a folder, or a file that is a whole model."""
    if path.is_dir():
        return path if any(any(path.glob(pattern)) for pattern in _MODEL_FILES) else None
    if any(path.match(pattern) for pattern in _WHOLE_MODELS):
        return path
    is_part = any(path.match(pattern) for pattern in (*_MODEL_FILES, "config.json"))
    return _find_model(path.parent) if is_part else None


def _export_command(source: Path) -> str:
    place = source.resolve()
    output = BUILD_FOLDER / (place.name if place.is_dir() else place.stem)
    command = ["attendant", "export", str(source), "-o", str(output)]
    keeps_bits = place.suffix == ".gguf"
    return shlex.join(command if keeps_bits else [*command, "--precision", "int8"])
