"""Read, check and write bundles. All problems of a bundle are reported together.

The checksums show that the files are those that the exporter wrote. No graph is loaded here.
"""

import dataclasses
import enum
import hashlib
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from serving.bundle.folders import explain_missing_manifest
from serving.bundle.manifest import (
    CARD_FILE,
    MANIFEST_FILE,
    SHORTLIST_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    WORDS_FILE,
    Manifest,
)
from serving.bundle.replacement import restore_replaced_bundle
from serving.bundle.validation import manifest_problems
from serving.errors import BundleError


@dataclass(frozen=True)
class Bundle:
    folder: Path
    manifest: Manifest

    def graph_path(self, name: str) -> Path:
        return self.folder / self.manifest.graphs[name].file

    @property
    def weight_files(self) -> list[Path]:
        """Return the paths of the files of large tensors, which graphs refer to."""
        return [self.folder / name for name in self.manifest.files if name.endswith(".bin")]

    @property
    def size_bytes(self) -> int:
        """Return the size of all files that the manifest lists."""
        return sum((self.folder / name).stat().st_size for name in self.manifest.files)

    @property
    def tokenizer_path(self) -> Path:
        """Return the path of the tokenizer, or of that of the source if there are two."""
        return self.folder / TOKENIZER_FILE

    @property
    def target_tokenizer_path(self) -> Path:
        has_own = TARGET_TOKENIZER_FILE in self.manifest.files
        return self.folder / TARGET_TOKENIZER_FILE if has_own else self.tokenizer_path

    @property
    def shortlist_path(self) -> Path:
        """The file exists only if the manifest has a shortlist."""
        return self.folder / SHORTLIST_FILE

    @property
    def words_text(self) -> str | None:
        """Return the words that the model knows; None if the bundle has no list of them."""
        if WORDS_FILE not in self.manifest.files:
            return None
        return (self.folder / WORDS_FILE).read_text(encoding="utf-8", errors="replace")

    @property
    def card_text(self) -> str:
        """Return the model card in Markdown; an empty text if there is none."""
        if CARD_FILE not in self.manifest.files:
            return ""
        return (self.folder / CARD_FILE).read_text(encoding="utf-8", errors="replace")


def open_bundle(folder: Path | str) -> Bundle:
    """Read and check a bundle. Raises BundleError with every problem found."""
    folder, problems = Path(folder), list[str]()
    document, manifest = _read_manifest(folder, problems)
    if manifest is not None:
        problems.extend(manifest_problems(manifest))
    problems.extend(_file_problems(folder, _listed_files(document)))
    if manifest is None or problems:
        raise BundleError(folder, problems)
    return Bundle(folder, manifest)


def open_manifest(folder: Path | str) -> Manifest:
    """Read a manifest without checking it or the other files. Raises BundleError."""
    folder, problems = Path(folder), list[str]()
    _, manifest = _read_manifest(folder, problems)
    if manifest is None or problems:
        raise BundleError(folder, problems)
    return manifest


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(folder: Path, problems: list[str]) -> tuple[Any, Manifest | None]:
    """Return the JSON of a manifest, and the manifest if it can be read."""
    restore_replaced_bundle(folder)
    path = folder / MANIFEST_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document, read_dataclass(Manifest, document, problems)
    except (FileNotFoundError, NotADirectoryError):
        problems.append(explain_missing_manifest(folder))
    except OSError as error:
        problems.append(f"{MANIFEST_FILE}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        problems.append(f"{MANIFEST_FILE}: not valid JSON: {error}")
    return None, None


def _listed_files(document: Any) -> dict[str, str]:
    """Return checksums by file name, also from a manifest that has problems."""
    files = document.get("files") if isinstance(document, dict) else None
    listed = files.items() if isinstance(files, dict) else ()
    return {name: checksum for name, checksum in listed if isinstance(checksum, str)}


def _file_problems(folder: Path, files: dict[str, str]) -> Iterator[str]:
    for name, expected in files.items():
        path = folder / Path(name).name
        try:
            digest = sha256_of(path)
        except FileNotFoundError:
            yield f"{name}: missing"
        except OSError as error:
            yield f"{name}: {error.strerror}"
        else:
            if digest != expected:
                yield f"{name}: SHA-256 is {digest[:12]}..., the manifest says {expected[:12]}..."


T = TypeVar("T")


def read_dataclass(cls: type[T], value: Any, problems: list[str], where: str = "") -> T | None:
    """Build a dataclass from a JSON object; append problems to `problems` and return None then.

    Fields may be numbers, texts, enums, unions, tuples, dicts and dataclasses.
    """
    num_before = len(problems)
    if not isinstance(value, dict):
        problems.append(f"{where or 'the document'}: expected an object, got {_kind(value)}")
        return None
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    problems.extend(f"{_join(where, key)}: unknown key" for key in value if key not in fields)
    values = {}
    for name, field in fields.items():
        if name in value:
            values[name] = _read(hints[name], value[name], problems, _join(where, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"{_join(where, name)}: missing")
    return cls(**values) if len(problems) == num_before else None


def _read(hint: Any, value: Any, problems: list[str], where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, problems, where)
    if origin is tuple:
        return _read_tuple(args[0], value, problems, where)
    if origin is dict:
        return _read_dict(args[1], value, problems, where)
    if dataclasses.is_dataclass(hint):
        return read_dataclass(typing.cast(type, hint), value, problems, where)
    if issubclass(hint, enum.Enum):
        return _read_enum(hint, value, problems, where)
    return _read_plain(hint, value, problems, where)


def _read_union(choices: tuple[Any, ...], value: Any, problems: list[str], where: str) -> Any:
    """Return the first choice that fits. If only one is possible, report its problems."""
    if value is None and types.NoneType in choices:
        return None
    others = [choice for choice in choices if choice is not types.NoneType]
    for choice in others:
        own_problems: list[str] = []
        result = _read(choice, value, own_problems, where)
        if not own_problems:
            return result
    if len(others) == 1:
        problems.extend(own_problems)
    else:
        names = " or ".join(choice.__name__ for choice in others)
        problems.append(f"{where}: expected {names}, got {_kind(value)}")
    return None


def _read_tuple(item: Any, value: Any, problems: list[str], where: str) -> Any:
    if not isinstance(value, list | tuple):
        problems.append(f"{where}: expected a list, got {_kind(value)}")
        return None
    return tuple(_read(item, v, problems, f"{where}[{i}]") for i, v in enumerate(value))


def _read_dict(item: Any, value: Any, problems: list[str], where: str) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{where}: expected an object, got {_kind(value)}")
        return None
    return {key: _read(item, v, problems, _join(where, key)) for key, v in value.items()}


def _read_enum(hint: type[enum.Enum], value: Any, problems: list[str], where: str) -> Any:
    try:
        return hint(value)
    except ValueError:
        choices = ", ".join(str(member.value) for member in hint)
        problems.append(f"{where}: {value!r} is not one of {choices}")
        return None


def _read_plain(hint: type, value: Any, problems: list[str], where: str) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:  # not isinstance: True is no integer here
        problems.append(f"{where}: expected {hint.__name__}, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"{type(value).__name__} {text}"


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with the checksums of all files in ``folder``; return it."""
    paths = sorted(path for path in folder.iterdir() if path.name != MANIFEST_FILE)
    manifest = dataclasses.replace(manifest, files={path.name: sha256_of(path) for path in paths})
    document = dataclasses.asdict(manifest)
    for part, name in (  # unknown to older servers
        (document, "encoder"),
        (document, "picture"),
        (document, "audio"),
        (document, "domain"),
        (document, "origin"),
        (document["limits"], "split_tokens"),
    ):
        if part[name] is None:
            del part[name]
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")
    return manifest
