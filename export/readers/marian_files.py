"""Files of Marian: weights in `.npz` and `.bin` files, lexical shortlists, vocabularies."""

import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save

from export.readers.common import word_lists
from export.readers.common.files import Cursor, MalformedFile
from export.readers.common.pieces import Order, TokenizerError
from export.readers.common.word_lists import from_sentencepiece, piece_ids
from models.arrays import Array
from models.conventions import LanguageIds
from models.storage.files import MOST_CONFIG_BYTES, open_archive, read_file, read_json, read_text
from models.storage.stored import Stored

OPTIONS = "special:model.yml"  # the options as YAML, among the arrays
MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class Item:
    """Holds one array, as Marian multiplies by it: [in, out]. `read` gives it as fp32.

    multiplier: of an int8 array, levels to a unit: a weight is level / multiplier.
    """

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]
    multiplier: float | None = None

    @property
    def stored(self) -> Stored:
        return Stored(self.kind, self.shape, self.read)


def num_elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Make vectors rows [1, n], as in Marian."""
    return (1, *shape) if len(shape) == 1 else shape


# not there, not an archive, not of arrays, damaged, encrypted, compressed in unknown ways
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
ARCHIVE_KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8"}


def read_archive(path: Path, problems: list[str]) -> dict[str, Item]:
    """Read `model.npz`: numpy arrays in a zip archive. Nothing in it is unpickled."""
    try:
        with open_archive(path) as archive:
            if damaged := archive.testzip():
                problems.append(f"{path.name}: {damaged} is damaged")
                return {}
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: _archive_item(path, archive, name) for name in names}
    except UNREADABLE as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return {}


def _archive_item(path: Path, archive: zipfile.ZipFile, name: str) -> Item:
    """Reads the array's header only. Raises ValueError."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        if header is None:
            raise ValueError(f"{name} is of numpy format {version}")
        shape, _, dtype = header(file)
    kind = ARCHIVE_KINDS.get(dtype.name, dtype.name)
    return Item(as_matrix(shape), kind, partial(_read, path, name))


def _read(path: Path, name: str) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        array = archive[name]
    return _as_read(array.reshape(as_matrix(array.shape)))


def _as_read(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


VERSION = 1
MOST_ITEMS = 20_000  # some hundred are usual
FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x404, 0x402, 0x101, 0x4101
TYPES = {FLOAT32: "<f4", FLOAT16: "<f2", INT8: "i1", INTGEMM8: "i1"}
KINDS = {FLOAT32: "F32", FLOAT16: "F16", INT8: "I8", INTGEMM8: "F32"}  # as they are read
HEADER = np.dtype([("name", "<u8"), ("type", "<u8"), ("axes", "<u8"), ("bytes", "<u8")])
EMBEDDING = "Wemb"  # in the names of embeddings


def is_binary(path: Path) -> bool:
    """Tell whether the file's version is that of a Marian file."""
    try:
        with path.open("rb") as file:
            return file.read(8) == VERSION.to_bytes(8, "little")
    except OSError:
        return False


def read_binary(path: Path, problems: list[str]) -> dict[str, Item]:
    """Read a binary file, such as the int8 models of Firefox Translations and Bergamot.

    The layout is that of marian-dev's src/common/binary.cpp: the version, 1, and the number of
    items (uint64 each); for each item the lengths of its name, its type, the number of its axes and
    its bytes (uint64 each); all names, which end with a zero; all axes (int32); the number of bytes
    up to the next multiple of 256, and these; then the data of one item after the other.

    int8 arrays ("intgemm8") are transposed, [out, in], except the embeddings, whose rows are words.
    After the levels comes a float, the multiplier: a weight is its level / multiplier.
    """
    try:
        return _read_items(Cursor(np.memmap(path, np.uint8, "r")), path.name, problems)
    except (OSError, ValueError) as error:  # mapping an empty file is a ValueError
        problems.append(f"{path.name} cannot be read: {error}")
    except MalformedFile as error:
        problems.append(f"{path.name} {error}")
    return {}


@dataclass(frozen=True)
class _Header:
    name: str
    type: int
    shape: tuple[int, ...]
    num_bytes: int

    def problems(self) -> Iterator[str]:
        if self.type not in TYPES:
            yield f"{self.name} is of type {self.type:#x}, which is not supported"
        elif min(self.shape, default=0) < 1:
            yield f"{self.name} has shape {list(self.shape)}"
        elif self.num_bytes < self.needed:
            yield (
                f"{self.name} of shape {list(self.shape)} has {self.num_bytes} bytes,"
                f" expected {self.needed}"
            )

    @property
    def needed(self) -> int:
        multiplier = 4 if self.type == INTGEMM8 else 0
        return num_elements(self.shape) * np.dtype(TYPES[self.type]).itemsize + multiplier


def _read_items(cursor: Cursor, file: str, problems: list[str]) -> dict[str, Item]:
    if (version := cursor.number("<u8", "the version")) != VERSION:
        raise MalformedFile(f"is no Marian model: it begins with {version}, expected {VERSION}")
    items = {}
    headers = list(_read_headers(cursor))
    cursor.array("u1", cursor.number("<u8", "the gap"), "the gap before the data")
    for header in headers:
        data = cursor.array("u1", header.num_bytes, f"the data of {header.name}")
        found = [f"{file}: {problem}" for problem in header.problems()]
        if header.name in items:
            found.append(f"{file}: {header.name} is there twice")
        problems += found
        if not found:
            items[header.name] = _item(header, data)
    if cursor.num_left:
        raise MalformedFile(f"has {cursor.num_left} bytes after its last item")
    return items


def _read_headers(cursor: Cursor) -> Iterator[_Header]:
    count = cursor.number("<u8", "the number of items")
    if MOST_ITEMS < count <= cursor.num_left // HEADER.itemsize:  # else it is cut short
        raise MalformedFile(f"has {count} items, more than {MOST_ITEMS}")
    headers = cursor.array(HEADER, count, "the headers of the items")
    names = [_name(cursor.array("u1", int(each["name"]), "a name")) for each in headers]
    for name, header in zip(names, headers, strict=True):
        if header["axes"] > MOST_DIMENSIONS:
            raise MalformedFile(f"has an item {name} of {header['axes']} axes")
        shape = cursor.array("<i4", int(header["axes"]), f"the shape of {name}").tolist()
        yield _Header(name, int(header["type"]), tuple(shape), int(header["bytes"]))


def _name(data: Array) -> str:
    try:
        return bytes(data).rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise MalformedFile("has an item whose name is not UTF-8") from None


def _item(header: _Header, data: Array) -> Item:
    shape, kind = as_matrix(header.shape), KINDS[header.type]
    if header.type == INTGEMM8:
        levels = data[: num_elements(shape)].view(np.int8)
        multiplier = float(data[num_elements(shape) : header.needed].copy().view("<f4")[0])
        is_transposed = EMBEDDING not in header.name
        read = partial(_dequantise, levels, shape, multiplier, is_transposed=is_transposed)
        return Item(shape, kind, read, multiplier)
    values = data[: header.needed].view(TYPES[header.type]).reshape(shape)
    return Item(shape, kind, partial(_as_stored, values))


def _as_stored(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.kind == "f" else np.array(values)


def _dequantise(
    levels: Array, shape: tuple[int, ...], multiplier: float, *, is_transposed: bool
) -> Array:
    scale = np.float32(1 / multiplier)
    if is_transposed:
        return levels.reshape(shape[::-1]).T.astype(np.float32) * scale
    return levels.reshape(shape).astype(np.float32) * scale


MAGIC = 0xF11A48D5013417F5
SHORTLIST_HEADER = (
    "magic",
    "checksum",
    "most frequent",
    "best",
    "offsets",
    "candidates",
)  # uint64 each
WORD = 2**64 - 1


def is_shortlist(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(8) == MAGIC.to_bytes(8, "little")
    except OSError:
        return False


def read_shortlist(
    path: Path, vocab_sizes: tuple[int, int], problems: list[str], *, is_shared: bool
) -> bytes | None:
    """Write the bundle's `shortlist.safetensors`; what is wrong with the file is a problem.

    is_shared: source and target have one vocabulary; then a token may translate itself, as in
    Bergamot.
    """
    try:
        data = read_file(path)
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return None
    found = list(_file_problems(data))
    if not found:
        num_first, offsets, candidates = _parts(data)
        found = list(_content_problems(offsets, candidates, vocab_sizes))
    problems += [f"{path.name} {problem}" for problem in found]
    if found:
        return None
    if is_shared:
        offsets, candidates = _with_themselves(offsets, candidates)
    return save(
        {
            "always": np.arange(min(num_first, vocab_sizes[1]), dtype=np.int32),
            "offsets": offsets.astype(np.int64),
            "candidates": candidates.astype(np.int32),
        }
    )


def _file_problems(data: bytes) -> list[str]:
    size = 8 * len(SHORTLIST_HEADER)
    if len(data) < size:
        return [f"has {len(data)} bytes, its header alone has {size}"]
    header = dict(
        zip(
            SHORTLIST_HEADER,
            np.frombuffer(data, "<u8", len(SHORTLIST_HEADER)).tolist(),
            strict=True,
        )
    )
    if header["magic"] != MAGIC:
        return [f"is no binary shortlist: it begins with {header['magic']:#x}"]
    expected = size + 8 * header["offsets"] + 4 * header["candidates"]
    if len(data) != expected:
        return [f"has {len(data)} bytes, its header tells of {expected}"]
    if checksum(data[16:]) != header["checksum"]:
        return ["is damaged: its checksum is another"]
    return []


def _parts(data: bytes) -> tuple[int, Array, Array]:
    """Read how many of the most frequent tokens are always candidates, offsets and candidates."""
    _, _, num_first, _, num_offsets, num_candidates = np.frombuffer(
        data, "<u8", len(SHORTLIST_HEADER)
    )
    start = 8 * len(SHORTLIST_HEADER)
    offsets = np.frombuffer(data, "<u8", int(num_offsets), start).astype(np.int64)
    start += 8 * len(offsets)
    return int(num_first), offsets, np.frombuffer(data, "<u4", int(num_candidates), start)


def _content_problems(offsets: Array, candidates: Array, vocab_sizes: tuple[int, int]) -> list[str]:
    problems = []
    source_size, target_size = vocab_sizes
    if len(offsets) != source_size + 1:
        problems.append(f"tells of {len(offsets) - 1} source tokens, expected {source_size}")
    elif offsets[0] != 0 or offsets[-1] != len(candidates) or (np.diff(offsets) < 0).any():
        problems.append("has offsets that do not ascend from 0 to its number of candidates")
    if len(candidates) and candidates.max() >= target_size:
        problems.append(f"names token {candidates.max()} of a vocabulary of {target_size}")
    return problems


def _with_themselves(offsets: Array, candidates: Array) -> tuple[Array, Array]:
    """Every token among its own candidates, which stay sorted and distinct."""
    num_tokens = len(offsets) - 1
    sources = np.repeat(np.arange(num_tokens), np.diff(offsets))
    pairs = np.concatenate(
        [sources * num_tokens + candidates, np.arange(num_tokens) * (num_tokens + 1)]
    )
    sources, candidates = np.divmod(np.unique(pairs), num_tokens)
    return np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=num_tokens))]), candidates


def checksum(data: bytes) -> int:
    """marian-dev's src/common/hash.h, hashMem, of whole words of 8 bytes."""
    seed = 0
    for word in np.frombuffer(data, "<u8", len(data) // 8).tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & WORD
    return seed


EOS, UNKNOWN = "</s>", "<unk>"
LOADER: Any = getattr(
    yaml, "CBaseLoader", yaml.BaseLoader
)  # makes nothing but text of what it reads
LANGUAGE = re.compile(r">>(.+)<<")  # in front of the sources of models into several languages


@dataclass(frozen=True)
class Vocabulary:
    """targets: what target languages add to the source, of models into several."""

    tokenizer: bytes = field(repr=False)
    eos: int
    unk: int | None
    targets: Mapping[str, LanguageIds]


def read_vocabulary(
    path: Path, side: str, num_words: int | None, problems: list[str]
) -> Vocabulary | None:
    """Read the side "source" or "target". A list of words in YAML has its pieces from `source.spm`
    or `target.spm` beside it, as OPUS-MT has them, or is of words that spaces part; of those the
    model knows the first `num_words`. What is wrong is a problem.
    """
    if path.suffix != ".spm" and not (path.parent / f"{side}.spm").is_file():
        return _read_words(path, side, num_words, problems)
    is_ordered = path.suffix != ".spm"
    model = path.parent / f"{side}.spm" if is_ordered else path
    try:
        data = read_file(model)
        ids = _ids_in_yaml(path) if is_ordered else piece_ids(data)
        order = Order(ids=ids, special=tuple(_special(ids))) if is_ordered else Order()
        tokenizer = from_sentencepiece(data, order)
    except TokenizerError as error:
        problems += [f"{model.name}: {problem}" for problem in error.problems]
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
    else:
        if EOS in ids:
            return Vocabulary(tokenizer, ids[EOS], ids.get(UNKNOWN), _targets(ids))
        problems.append(f"{path.name} has no {EOS}, which every text ends with")
    return None


def _read_words(
    path: Path, side: str, num_words: int | None, problems: list[str]
) -> Vocabulary | None:
    try:
        ids = _ids_of_words(path)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return None
    words = _in_order(ids, num_words or len(ids))
    missing = [name for name in (EOS, UNKNOWN) if name not in words]
    if missing:
        problems.append(f"{path.name} has no {missing[0]}")
        return None
    special = [name for name in words if name in (EOS, UNKNOWN) or LANGUAGE.fullmatch(name)]
    tokenizer = word_lists.read_vocabulary(words, special, UNKNOWN, path.parent, side, problems)
    found = {name: token_id for token_id, name in enumerate(words)}
    if tokenizer is None:
        return None
    return Vocabulary(tokenizer, found[EOS], found[UNKNOWN], _targets(found))


def _ids_of_words(path: Path) -> dict[str, int]:
    """Read a dictionary, or a word a line. Raises ValueError, OSError, YAMLError."""
    if path.suffix not in (".json", ".yml", ".yaml"):
        words = read_text(path).splitlines()
        return {word: token_id for token_id, word in enumerate(words)}
    if path.suffix != ".json":
        ids = _ids_in_yaml(path)
    else:
        values = read_json(path)
        if not isinstance(values, dict) or not all(isinstance(i, int) for i in values.values()):
            raise ValueError("it is no list of words and their ids")
        ids = values
    return _with_special(ids)


def _with_special(ids: Mapping[str, int]) -> dict[str, int]:
    """Name the first two as Marian does, where Nematus names them or leaves them out."""
    names = {token_id: name for name, token_id in ids.items()}
    for token_id, (nematus, marian) in enumerate((("eos", EOS), ("UNK", UNKNOWN))):
        if marian not in ids and names.get(token_id, nematus) == nematus:
            names[token_id] = marian
    return {name: token_id for token_id, name in names.items()}


def _in_order(ids: Mapping[str, int], num_words: int) -> list[str]:
    """List words by their ids. A name with a space, which no text has, stands where none is."""
    words = [f"<unused {token_id}>" for token_id in range(num_words)]
    for word, token_id in ids.items():
        if 0 <= token_id < num_words:
            words[token_id] = word
    return words


def _ids_in_yaml(path: Path) -> dict[str, int]:
    """Everything as text: `no` and `1` are words. Raises ValueError, OSError, YAMLError."""
    text = read_text(path, MOST_CONFIG_BYTES)
    _check_depth(text)
    values: Any = yaml.load(text, Loader=LOADER)
    if not isinstance(values, dict):
        raise ValueError("it is no list of words and their ids")
    return {word: int(token_id) for word, token_id in values.items()}


def _check_depth(text: str) -> None:
    """Refuse what nests, before a loader follows it down in C until the stack is full, which ends
    the process. Raises ValueError, YAMLError.
    """
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > 1:
            raise ValueError("it is no list of words and their ids: it nests")


def _special(ids: Mapping[str, int]) -> list[str]:
    return [name for name in ids if name in (EOS, "<pad>") or LANGUAGE.fullmatch(name)]


def _targets(ids: Mapping[str, int]) -> dict[str, LanguageIds]:
    found = ((LANGUAGE.fullmatch(name), token_id) for name, token_id in ids.items())
    return {match[1]: LanguageIds(source_prefix=(token_id,)) for match, token_id in found if match}
