"""Vocabularies of Marian, and its binary lexical shortlists."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save

from export.readers.common import tokenizers
from export.readers.common.pieces import Order, TokenizerError
from export.readers.common.tokenizers import read_piece_ids, tokenizer_from_sentencepiece
from models.conventions import LanguageIds
from models.files import MOST_CONFIG_BYTES, read_file, read_json, read_text
from models.safetensors import Array

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
        ids = _ids_in_yaml(path) if is_ordered else read_piece_ids(data)
        order = Order(ids=ids, special=tuple(_special(ids))) if is_ordered else Order()
        tokenizer = tokenizer_from_sentencepiece(data, order)
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
    tokenizer = tokenizers.tokenizer_from_vocabulary(
        words, special, UNKNOWN, path.parent, side, problems
    )
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
    """Name the first two entries as Marian does; Nematus names them otherwise or leaves them
    out.
    """
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
