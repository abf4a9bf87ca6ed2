"""Opens a bundle: reads ``bundle.json``, checks it and every file, reports all problems at once.

Nothing here loads a graph; a bundle that opens is one whose files are what the exporter wrote.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serving.bundle.checks import manifest_problems
from serving.bundle.manifest import MANIFEST_FILE, TOKENIZER_FILE, Manifest
from serving.bundle.reading import read_dataclass
from serving.errors import BundleError


@dataclass(frozen=True)
class Bundle:
    folder: Path
    manifest: Manifest

    def graph_path(self, name: str) -> Path:
        return self.folder / self.manifest.graphs[name].file

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / TOKENIZER_FILE


def open_bundle(folder: Path | str) -> Bundle:
    """Read and check a bundle. Raises BundleError with every problem found."""
    folder = Path(folder)
    problems: list[str] = []
    manifest = _read_manifest(folder, problems)
    if manifest is not None:
        problems.extend(manifest_problems(manifest))
        problems.extend(_file_problems(folder, manifest))
    if manifest is None or problems:
        raise BundleError(folder, problems)
    return Bundle(folder, manifest)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(folder: Path, problems: list[str]) -> Manifest | None:
    path = folder / MANIFEST_FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{MANIFEST_FILE}: missing" if folder.is_dir() else "no such folder")
    except OSError as error:
        problems.append(f"{MANIFEST_FILE}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        problems.append(f"{MANIFEST_FILE}: not valid JSON: {error}")
    else:
        return read_dataclass(Manifest, value, problems)
    return None


def _file_problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    for name, expected in manifest.files.items():
        path = folder / Path(name).name
        try:
            found = sha256_of(path)
        except FileNotFoundError:
            yield f"{name}: missing"
        except OSError as error:
            yield f"{name}: {error.strerror}"
        else:
            if found != expected:
                yield f"{name}: SHA-256 is {found[:12]}..., the manifest says {expected[:12]}..."
