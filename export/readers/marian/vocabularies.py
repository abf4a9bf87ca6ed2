"""Vocabularies of Marian: sentencepiece models, and lists of words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from export.readers.common.pieces import PieceOrder, TokenizerError
from export.readers.common.tokenizers import read_piece_ids, tokenizer_from_sentencepiece
from export.readers.common.word_tokenizers import tokenizer_from_vocabulary
from models.conventions import AddedLanguageIds
from models.files import MOST_CONFIG_BYTES, read_file, read_json, read_text

EOS, UNKNOWN = "</s>", "<unk>"
LOADER: Any = getattr(
    yaml, "CBaseLoader", yaml.BaseLoader
)  # makes nothing but text of what it reads
LANGUAGE = re.compile(r">>(.+)<<")  # in front of the sources of models into several languages


@dataclass(frozen=True)
class MarianVocabulary:
    """A vocabulary of one side.

    eos, unk: ids. targets: what target languages add to the source, of models into several."""

    tokenizer: bytes = field(repr=False)
    eos: int
    unk: int | None
    targets: Mapping[str, AddedLanguageIds]


def read_vocabulary(
    path: Path, side: str, num_words: int | None, problems: list[str]
) -> MarianVocabulary | None:
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
        ids = _read_yaml_ids(path) if is_ordered else read_piece_ids(data)
        order = (
            PieceOrder(ids=ids, special=tuple(_special_tokens(ids))) if is_ordered else PieceOrder()
        )
        tokenizer = tokenizer_from_sentencepiece(data, order)
    except TokenizerError as error:
        problems += [f"{model.name}: {problem}" for problem in error.problems]
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
    else:
        if EOS in ids:
            return MarianVocabulary(tokenizer, ids[EOS], ids.get(UNKNOWN), _target_languages(ids))
        problems.append(f"{path.name} has no {EOS}, which every text ends with")
    return None


def _read_words(
    path: Path, side: str, num_words: int | None, problems: list[str]
) -> MarianVocabulary | None:
    try:
        ids = _read_ids(path)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return None
    words = _order_words(ids, num_words or len(ids))
    missing = [name for name in (EOS, UNKNOWN) if name not in words]
    if missing:
        problems.append(f"{path.name} has no {missing[0]}")
        return None
    special = [name for name in words if name in (EOS, UNKNOWN) or LANGUAGE.fullmatch(name)]
    tokenizer = tokenizer_from_vocabulary(words, special, UNKNOWN, path.parent, side, problems)
    ids = {name: token_id for token_id, name in enumerate(words)}
    if tokenizer is None:
        return None
    return MarianVocabulary(tokenizer, ids[EOS], ids[UNKNOWN], _target_languages(ids))


def _read_ids(path: Path) -> dict[str, int]:
    """Read a dictionary, or a word a line. Raises ValueError, OSError, YAMLError."""
    if path.suffix not in (".json", ".yml", ".yaml"):
        words = read_text(path).splitlines()
        return {word: token_id for token_id, word in enumerate(words)}
    if path.suffix != ".json":
        ids = _read_yaml_ids(path)
    else:
        values = read_json(path)
        if not isinstance(values, dict) or not all(isinstance(i, int) for i in values.values()):
            raise ValueError("it is no list of words and their ids")
        ids = values
    return _name_special_tokens(ids)


def _name_special_tokens(ids: Mapping[str, int]) -> dict[str, int]:
    """Name the first two entries as Marian does; Nematus names them otherwise or leaves them
    out.
    """
    names = {token_id: name for name, token_id in ids.items()}
    for token_id, (nematus, marian) in enumerate((("eos", EOS), ("UNK", UNKNOWN))):
        if marian not in ids and names.get(token_id, nematus) == nematus:
            names[token_id] = marian
    return {name: token_id for token_id, name in names.items()}


def _order_words(ids: Mapping[str, int], num_words: int) -> list[str]:
    """List words by their ids. A name with a space, which no text has, stands where none is."""
    words = [f"<unused {token_id}>" for token_id in range(num_words)]
    for word, token_id in ids.items():
        if 0 <= token_id < num_words:
            words[token_id] = word
    return words


def _read_yaml_ids(path: Path) -> dict[str, int]:
    """Read everything as text: `no` and `1` are words. Raises ValueError, OSError, YAMLError."""
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


def _special_tokens(ids: Mapping[str, int]) -> list[str]:
    return [name for name in ids if name in (EOS, "<pad>") or LANGUAGE.fullmatch(name)]


def _target_languages(ids: Mapping[str, int]) -> dict[str, AddedLanguageIds]:
    matches = ((LANGUAGE.fullmatch(name), token_id) for name, token_id in ids.items())
    return {
        match[1]: AddedLanguageIds(source_prefix=(token_id,))
        for match, token_id in matches
        if match
    }
