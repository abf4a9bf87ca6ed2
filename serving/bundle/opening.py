"""Opens a bundle: reads ``bundle.json``, checks it and every file, reports all problems at once.

Nothing here loads a graph; a bundle that opens is one whose files are what the exporter wrote.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.bundle.manifest import (
    CARD_FILE,
    MANIFEST_FILE,
    SHORTLIST_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    WORDS_FILE,
    Manifest,
)
from serving.bundle.reading import read_dataclass
from serving.bundle.validation import manifest_problems
from serving.errors import BundleError


@dataclass(frozen=True)
class Bundle:
    folder: Path
    manifest: Manifest

    def graph_path(self, name: str) -> Path:
        return self.folder / self.manifest.graphs[name].file

    @property
    def tokenizer_path(self) -> Path:
        """Return the tokenizer of both sides, or of the source."""
        return self.folder / TOKENIZER_FILE

    @property
    def target_tokenizer_path(self) -> Path:
        has_own = TARGET_TOKENIZER_FILE in self.manifest.files
        return self.folder / TARGET_TOKENIZER_FILE if has_own else self.tokenizer_path

    @property
    def shortlist_path(self) -> Path:
        """Only there where the manifest has a shortlist."""
        return self.folder / SHORTLIST_FILE

    @property
    def words_text(self) -> str | None:
        """Return the words that the model knows; None where that was not stored."""
        if WORDS_FILE not in self.manifest.files:
            return None
        return (self.folder / WORDS_FILE).read_text(encoding="utf-8", errors="replace")

    @property
    def card_text(self) -> str:
        """Return what the model card says, in Markdown; nothing without one."""
        if CARD_FILE not in self.manifest.files:
            return ""
        return (self.folder / CARD_FILE).read_text(encoding="utf-8", errors="replace")


def open_bundle(folder: Path | str) -> Bundle:
    """Read and check a bundle. Raises BundleError with every problem found."""
    folder = Path(folder)
    problems: list[str] = []
    document = _read_json(folder, problems)
    manifest = None if problems else read_dataclass(Manifest, document, problems)
    if manifest is not None:
        problems.extend(manifest_problems(manifest))
    problems.extend(_file_problems(folder, _listed_files(document)))
    if manifest is None or problems:
        raise BundleError(folder, problems)
    return Bundle(folder, manifest)


def open_manifest(folder: Path | str) -> Manifest:
    """Read what a bundle says of itself, without a look at its files. Raises BundleError."""
    folder = Path(folder)
    problems: list[str] = []
    document = _read_json(folder, problems)
    manifest = None if problems else read_dataclass(Manifest, document, problems)
    if manifest is None or problems:
        raise BundleError(folder, problems)
    return manifest


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(folder: Path, problems: list[str]) -> Any:
    path = folder / MANIFEST_FILE
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{MANIFEST_FILE}: missing" if folder.is_dir() else "no such folder")
    except OSError as error:
        problems.append(f"{MANIFEST_FILE}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        problems.append(f"{MANIFEST_FILE}: not valid JSON: {error}")
    return None


def _listed_files(document: Any) -> dict[str, str]:
    """File names with their checksums, as far as the manifest, right or wrong, lists them."""
    files = document.get("files") if isinstance(document, dict) else None
    listed = files.items() if isinstance(files, dict) else ()
    return {name: checksum for name, checksum in listed if isinstance(checksum, str)}


def _file_problems(folder: Path, files: dict[str, str]) -> Iterator[str]:
    for name, expected in files.items():
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
