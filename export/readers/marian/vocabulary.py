"""Reads Marian's vocabularies: sentencepiece models, or words in YAML beside one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from export.readers.common.text.errors import TokenizerError
from export.readers.common.text.pieces import Order
from export.readers.common.text.sentencepiece import from_sentencepiece, piece_ids
from models.conventions import LanguageIds
from models.storage.files import MOST_CONFIG_BYTES, read_file, read_text

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


def read_vocabulary(path: Path, side: str, problems: list[str]) -> Vocabulary | None:
    """Read the side "source" or "target". A vocabulary in YAML has its pieces from `source.spm` or
    `target.spm` beside it, as OPUS-MT has them. What is wrong is a problem.
    """
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


def _ids_in_yaml(path: Path) -> dict[str, int]:
    """Everything as text: `no` and `1` are words. Raises ValueError, OSError, YAMLError."""
    values: Any = yaml.load(read_text(path, MOST_CONFIG_BYTES), Loader=LOADER)
    if not isinstance(values, dict):
        raise ValueError("it is no list of words and their ids")
    return {word: int(token_id) for word, token_id in values.items()}


def _special(ids: Mapping[str, int]) -> list[str]:
    return [name for name in ids if name in (EOS, "<pad>") or LANGUAGE.fullmatch(name)]


def _targets(ids: Mapping[str, int]) -> dict[str, LanguageIds]:
    found = ((LANGUAGE.fullmatch(name), token_id) for name, token_id in ids.items())
    return {match[1]: LanguageIds(source_prefix=(token_id,)) for match, token_id in found if match}
