"""The catalogue of Firefox Translations' models, and how a model of it is fetched.

The catalogue is a collection of Mozilla's Remote Settings: JSON records, of which each describes a
file of a model, its attachment. `translations-models-v2` has attachments that are compressed with
Zstandard; `translations-models`, of older mirrors, has them as they are. The root of the server
says where attachments are: https://remote-settings.readthedocs.io. The fields of records are those
of `TranslationsParent.sys.mjs` in Firefox's sources.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import zstandard
from tqdm import tqdm

from export.downloads import PullError
from export.http_files import (
    RemoteFile,
    StatusError,
    Unreachable,
    fetch_file,
    fetch_json,
    sha256_of,
)

SERVER = "https://firefox.settings.services.mozilla.com/v1"
SERVER_VARIABLE = "ATTENDANT_FIREFOX_SERVER"
COLLECTIONS = ("translations-models-v2", "translations-models")
TIMEOUT_SECONDS = 20.0
NEWEST_VERSION = 3  # major version of models; the next one may have other files
MOST_BYTES = 1 << 30  # of a file
# The best first: Firefox takes base on desktops, tiny on phones.
ARCHITECTURES = ("base", "base-memory", "tiny")
NAMES = {  # of files in the folder, by their types in the catalogue
    "model": "model.intgemm.alphas.bin",
    "vocab": "vocab.spm",
    "srcvocab": "srcvocab.spm",
    "trgvocab": "trgvocab.spm",
    "lex": "lex.s2t.bin",
}
DESCRIPTION_FILE = "model.json"
# The options with which Firefox translates, in its translations-engine.worker.js.
CONFIGURATION = """\
models: [{model}]
vocabs: [{source}, {target}]
{shortlist}beam-size: 1
normalize: 1.0
max-length-factor: 2.0
max-length-break: 128
"""
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_ARCHITECTURE = re.compile(r"[A-Za-z0-9][\w.-]*|")  # it is a part of a folder's name
_MOST_NAMED = 8  # pairs in an error


@dataclass(frozen=True)
class ModelFile:
    """A file of a model. location: of the attachment, relative to the URL of all attachments.

    size, sha256: of the attachment. content_size, content_sha256: of what is in it, where it is
    compressed, else the same.
    """

    type: str
    location: str
    size: int
    sha256: str
    content_size: int
    content_sha256: str

    @property
    def is_compressed(self) -> bool:
        return self.sha256 != self.content_sha256


@dataclass(frozen=True)
class FirefoxModel:
    """A model of the catalogue; its files by their types."""

    source: str
    target: str
    version: tuple[int, int]
    architecture: str
    files: Mapping[str, ModelFile]

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def title(self) -> str:
        major, minor = self.version
        return f"{self.pair} {major}.{minor} {self.architecture}".rstrip()

    @property
    def is_complete(self) -> bool:
        return "model" in self.files and (
            "vocab" in self.files or {"srcvocab", "trgvocab"} <= self.files.keys()
        )


@dataclass(frozen=True)
class FetchedModel:
    """A model in a folder of Marian."""

    folder: Path
    source: str
    target: str
    title: str

    @property
    def card(self) -> str:
        """Write the model card."""
        heading = f"# Firefox Translations, {self.title}"
        origin = "From Mozilla's catalogue of the models of Firefox; all files checked by SHA-256."
        return f"{heading}\n\n{origin}\n\n- Licence: MPL-2.0\n"


@dataclass(frozen=True)
class Catalogue:
    """attachments: the URL to which locations are relative. problems: why records, by their pairs,
    cannot be used.
    """

    server: str
    attachments: str
    models: tuple[FirefoxModel, ...]
    problems: Mapping[str, str]

    @property
    def pairs(self) -> list[str]:
        return sorted({model.pair for model in self.models})


def catalogue_server() -> str:
    """Return the URL of the server's root, without a slash at its end."""
    return (os.environ.get(SERVER_VARIABLE) or SERVER).rstrip("/")


def read_catalogue(timeout: float = TIMEOUT_SECONDS) -> Catalogue:
    """Raises PullError, and Unreachable if no server answers."""
    server = catalogue_server()
    root = fetch_json(f"{server}/", timeout)
    attachments = _look_up(root, "capabilities", "attachments", "base_url")
    if not isinstance(attachments, str) or not attachments:
        message = f"{server}/ does not say where attachments are: it is no Remote Settings server"
        raise PullError([f"{message}; {SERVER_VARIABLE} names another"])
    records = _read_records(server, timeout)
    models, problems = _read_models(records)
    if not models and not problems:
        raise PullError([f"{server} has no models of translation"])
    return Catalogue(server, attachments.rstrip("/") + "/", models, problems)


def choose_model(catalogue: Catalogue, pair: str, architecture: str | None) -> FirefoxModel:
    """Return the newest model of a pair, of the best architecture if none is named. Raises
    PullError that names pairs or architectures to choose from.
    """
    models = [model for model in catalogue.models if model.pair.lower() == pair.lower()]
    if not models:
        raise PullError([_explain_missing_pair(catalogue, pair)])
    if architecture is not None:
        names = sorted({model.architecture or "none" for model in models})
        models = [model for model in models if model.architecture == architecture]
        if not models:
            message = f"there is no {architecture} model of {pair}: there is {', '.join(names)}"
            raise PullError([message])
    return max(models, key=lambda model: (_rank(model.architecture), model.version))


def fetch_model(
    pair: str, architecture: str | None, cache: Path, timeout: float = TIMEOUT_SECONDS
) -> tuple[FetchedModel, str]:
    """Fetch a model into the cache, but for files that are there and whole. Return it, and a note
    on what is not as it should be, or "". Where the catalogue cannot be reached, a model that was
    fetched earlier is returned.

    Raises PullError.
    """
    try:
        catalogue = read_catalogue(timeout)
    except Unreachable as error:
        if (fetched := _find_fetched(pair, architecture, cache)) is None:
            raise
        return fetched, f"{error}: taking {fetched.title}, which was fetched earlier"
    model = choose_model(catalogue, pair, architecture)
    try:
        return _fetch_files(model, catalogue, cache, timeout), ""
    except OSError as error:
        problem = f"{error.filename or cache}: {error.strerror or error}"
        raise PullError([problem]) from None


def _read_records(server: str, timeout: float) -> list[Any]:
    """Return the records of the newest collection that the server has."""
    for collection in COLLECTIONS:
        url = f"{server}/buckets/main/collections/{collection}/records"
        try:
            document = fetch_json(url, timeout)
        except StatusError as error:
            if error.status == 404 and collection != COLLECTIONS[-1]:
                continue
            raise
        records = _look_up(document, "data")
        if not isinstance(records, list):
            raise PullError([f"{url} answers with JSON that has no list of records as `data`"])
        return records
    raise AssertionError


def _look_up(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _read_models(records: Iterable[Any]) -> tuple[tuple[FirefoxModel, ...], dict[str, str]]:
    """Return the models whose files are all described, and for other pairs what is wrong."""
    files: dict[tuple[str, str, str, tuple[int, int]], dict[str, ModelFile]] = {}
    problems: dict[str, str] = {}
    for record in sorted(filter(_is_for_all, records), key=_is_for_phones, reverse=True):
        source = record.get("sourceLanguage") or record.get("fromLang")
        target = record.get("targetLanguage") or record.get("toLang")
        if not (_is_language(source) and _is_language(target)):
            continue
        try:
            architecture = _read_architecture(record)
            version, file = _read_version(record), _read_file(record)
        except ValueError as error:
            problems[f"{source}-{target}"] = str(error)
            continue
        by_type = files.setdefault((source, target, architecture, version), {})
        if file is not None:
            by_type[file.type] = file
    models = []
    for (source, target, architecture, version), by_type in files.items():
        model = FirefoxModel(source, target, version, architecture, by_type)
        if model.is_complete:
            models.append(model)
        else:
            problems.setdefault(model.pair, f"{model.title} has no model file or no vocabulary")
    complete = {model.pair for model in models}
    return tuple(models), {pair: text for pair, text in problems.items() if pair not in complete}


def _is_for_all(record: Any) -> bool:
    """Return whether a record is for more than Firefox's test versions."""
    return isinstance(record, dict) and "env.channel" not in str(record.get("filter_expression"))


def _is_for_phones(record: dict[str, Any]) -> bool:
    return "== 'Android'" in str(record.get("filter_expression")).replace('"', "'")


def _is_language(code: object) -> bool:
    return isinstance(code, str) and _LANGUAGE.fullmatch(code) is not None


def _read_architecture(record: dict[str, Any]) -> str:
    architecture = str(record.get("architecture") or record.get("variant") or "")
    if not _ARCHITECTURE.fullmatch(architecture):
        raise ValueError(f"a record has no usable architecture: {architecture[:40]}")
    return architecture


def _read_version(record: dict[str, Any]) -> tuple[int, int]:
    text = record.get("version")
    match = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"version {text} is no release" if text else "a record has no version")
    version = int(match[1]), int(match[2])
    if version[0] > NEWEST_VERSION:
        raise ValueError(f"version {match[0]} is newer than this version of Attendant reads")
    return version


def _read_file(record: dict[str, Any]) -> ModelFile | None:
    """Return the file that a record describes; None if no translation needs it. Raises ValueError
    for a record of another shape.
    """
    kind = str(record.get("fileType"))
    if kind not in NAMES:
        return None
    attachment = record.get("attachment")
    location = _look_up(attachment, "location")
    if not isinstance(location, str) or not location:
        raise ValueError("a record has no attachment.location")
    size, sha256 = _read_size_and_hash(attachment, "size", "hash", "attachment.")
    content = size, sha256
    if "decompressedHash" in record or location.endswith(".zst"):
        content = _read_size_and_hash(record, "decompressedSize", "decompressedHash", "")
    return ModelFile(kind, location.lstrip("/"), size, sha256, *content)


def _read_size_and_hash(fields: Any, size: str, sha256: str, where: str) -> tuple[int, str]:
    with suppress(TypeError, ValueError):  # Kinto has had sizes as strings
        num_bytes, digest = int(fields.get(size)), str(fields.get(sha256)).lower()
        if 0 < num_bytes <= MOST_BYTES and _SHA256.fullmatch(digest):
            return num_bytes, digest
    raise ValueError(f"a record has no usable {where}{size} and {where}{sha256}")


def _rank(architecture: str) -> int:
    known = architecture in ARCHITECTURES
    return len(ARCHITECTURES) - ARCHITECTURES.index(architecture) if known else 0


def _explain_missing_pair(catalogue: Catalogue, pair: str) -> str:
    problems = {name.lower(): text for name, text in catalogue.problems.items()}
    if pair.lower() in problems:
        return f"{pair} cannot be used: {problems[pair.lower()]}"
    pairs = catalogue.pairs
    if near := [*_list_near_pairs(pairs, pair)]:
        by_english = all("en" in name.split("-") for name in near) and len(near) == 2
        way = "; a server of both translates by way of English" if by_english else ""
        return f"there is no {pair}: there is {', '.join(near)}{way}"
    similar = get_close_matches(pair, pairs, n=1)
    hint = f"did you mean {similar[0]}? " if similar else ""
    return f"there is no {pair}: {hint}`attendant pull firefox` lists the {len(pairs)} pairs"


def _list_near_pairs(pairs: list[str], pair: str) -> Iterator[str]:
    """Yield the pairs that lead from the source or to the target by way of English, else those
    with one of both languages.
    """
    lower = {name.lower(): name for name in pairs}
    words = pair.lower().split("-")
    splits = [("-".join(words[:at]), "-".join(words[at:])) for at in range(1, len(words))]
    for source, target in splits:
        if f"{source}-en" in lower and f"en-{target}" in lower:
            yield from (lower[f"{source}-en"], lower[f"en-{target}"])
            return
    for source, target in splits:
        near = [
            name
            for key, name in lower.items()
            if key.startswith(f"{source}-") or key.endswith(f"-{target}")
        ]
        yield from near[:_MOST_NAMED]


def _fetch_files(
    model: FirefoxModel, catalogue: Catalogue, cache: Path, timeout: float
) -> FetchedModel:
    folder = cache / "firefox" / model.title.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [
            file
            for file in model.files.values()
            if not _is_whole(folder / NAMES[file.type], file.content_sha256)
        ]
        with tqdm(
            total=sum(file.size for file in missing),
            desc=model.title,
            unit="B",
            unit_scale=True,
            leave=False,
            disable=None,
        ) as bar:
            for file in missing:
                _fetch_content(file, catalogue, folder, timeout, bar)
        _describe(model, folder)
    return FetchedModel(folder, model.source, model.target, model.title)


def _fetch_content(
    file: ModelFile, catalogue: Catalogue, folder: Path, timeout: float, bar: "tqdm[Any]"
) -> None:
    remote = RemoteFile(catalogue.attachments + file.location, file.size, file.sha256)
    path = folder / NAMES[file.type]
    if not file.is_compressed:
        path.unlink(missing_ok=True)
        fetch_file(remote, path, timeout, bar.update)
        return
    compressed = path.with_name(f"{path.name}.{file.sha256[:8]}.zst")
    fetch_file(remote, compressed, timeout, bar.update)
    try:
        _decompress(compressed, path, file)
    finally:
        compressed.unlink(missing_ok=True)


def _decompress(compressed: Path, path: Path, file: ModelFile) -> None:
    """Write what is in a file compressed with Zstandard, if it is what the catalogue says."""
    part = path.with_name(f"{path.name}.content")
    try:
        with compressed.open("rb") as source, part.open("wb") as target:
            reader = zstandard.ZstdDecompressor().stream_reader(source)
            num_left = file.content_size + 1  # one more: what is too long is not written on and on
            while num_left and (data := reader.read(min(num_left, 1 << 20))):
                target.write(data)
                num_left -= len(data)
    except zstandard.ZstdError as error:
        raise PullError([f"{file.location} cannot be decompressed: {error}"]) from None
    if (digest := sha256_of(part)) != file.content_sha256:
        part.unlink()
        expected = f"expected {file.content_sha256}"
        raise PullError([f"{file.location} holds a file of SHA-256 {digest}, {expected}"])
    part.replace(path)


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256


def _describe(model: FirefoxModel, folder: Path) -> None:
    """Write Marian's configuration, and what the folder has."""
    vocabularies = ("vocab", "vocab") if "vocab" in model.files else ("srcvocab", "trgvocab")
    source, target = (NAMES[name] for name in vocabularies)
    shortlist = f"shortlist: [{NAMES['lex']}, false]\n" if "lex" in model.files else ""
    configuration = CONFIGURATION.format(
        model=NAMES["model"], source=source, target=target, shortlist=shortlist
    )
    (folder / "config.yml").write_text(configuration, encoding="utf-8")
    description = {
        "source": model.source,
        "target": model.target,
        "title": model.title,
        "architecture": model.architecture,
        "files": {NAMES[name]: file.content_sha256 for name, file in model.files.items()},
    }
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2), encoding="utf-8")


def _find_fetched(pair: str, architecture: str | None, cache: Path) -> FetchedModel | None:
    """Return the model of a pair that was fetched last and is whole."""
    paths = (cache / "firefox").glob(f"*/{DESCRIPTION_FILE}")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            description = json.loads(path.read_text(encoding="utf-8"))
            source, target = description["source"], description["target"]
            is_wanted = f"{source}-{target}".lower() == pair.lower() and (
                architecture is None or description["architecture"] == architecture
            )
            files = description["files"].items()
            if is_wanted and all(_is_whole(path.parent / name, sha256) for name, sha256 in files):
                return FetchedModel(path.parent, source, target, description["title"])
    return None
