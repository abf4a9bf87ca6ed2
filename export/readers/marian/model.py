"""Reads a Marian folder as a checkpoint: weights, vocabularies, shortlist, and what it expects."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from export.readers.common.files import card_of, checkpoint_files
from export.readers.marian.archive import read_archive
from export.readers.marian.binary import read_binary
from export.readers.marian.folder import MarianFolder, find_files
from export.readers.marian.items import Item
from export.readers.marian.nematus_names import marian_names
from export.readers.marian.options import config_of, is_recurrent, read_options
from export.readers.marian.recurrent import RecurrentWeights
from export.readers.marian.shortlist import read_shortlist
from export.readers.marian.transformer import TransformerWeights
from export.readers.marian.vocabulary import Vocabulary, read_vocabulary
from export.readers.marian.weights import MarianWeights, embedding_names
from models.arrays import Arrays
from models.conventions import Conventions
from models.storage.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError

SHORTLIST_FILE = "shortlist.safetensors"
PAIR_IN_FILE = re.compile(r"(?:lex\.\d+\.\d+|model|vocab|srcvocab)\.([a-z]{2})-?([a-z]{2})\.")
PAIR_IN_FOLDER = re.compile(r"(?:^|.*-)([a-z]{2,3})-([a-z]{2,3})$|^([a-z]{2})([a-z]{2})(?:[-.]|$)")
MAX_LENGTH_FACTOR = 3.0  # Marian's default: tokens of a translation to one of its source


class _Vocabularies(NamedTuple):
    source: Vocabulary
    target: Vocabulary


def read(path: Path) -> Checkpoint:
    """Raises CheckpointError with everything that is wrong."""
    problems: list[str] = []
    folder = find_files(path, problems)
    items = _items(folder, problems)
    checkpoint = _checkpoint(folder, items, problems) if items else None
    if not items:
        _vocabularies(folder, None, problems)
    if problems or checkpoint is None:
        raise CheckpointError(path, list(dict.fromkeys(problems)))
    return checkpoint


def _items(folder: MarianFolder, problems: list[str]) -> dict[str, Item]:
    if folder.model is None:
        return {}
    read_file = read_archive if folder.model.suffix == ".npz" else read_binary
    return read_file(folder.model, problems)


def _vocabularies(
    folder: MarianFolder, sizes: tuple[int, int] | None, problems: list[str]
) -> _Vocabularies | None:
    """Read them; sizes: how many words the model has, of source and target."""
    if folder.vocabularies is None:
        return None
    source, target = (
        read_vocabulary(path, side, size, problems)
        for path, side, size in zip(
            folder.vocabularies, ("source", "target"), sizes or (None, None), strict=True
        )
    )
    return _Vocabularies(source, target) if source and target else None


def _checkpoint(
    folder: MarianFolder, items: dict[str, Item], problems: list[str]
) -> Checkpoint | None:
    options = read_options(items, folder.model, problems)
    source, target = embedding_names(options)
    items = marian_names(items, has_one_embedding=source == target)
    sizes = _num_rows(items, source), _num_rows(items, target)
    vocabularies = _vocabularies(folder, sizes, problems)
    languages = languages_of(folder)
    common = {
        "source_languages": [languages[0]],
        "target_languages": [languages[1]],
        "shortlist": folder.shortlist is not None,
        "eos_id": vocabularies.target.eos if vocabularies else 0,
    }
    shortlist = _shortlist(folder, sizes, problems)
    config = config_of(options, sizes, common)
    if config is None:
        return None
    reader: type[MarianWeights[Any]] = (
        RecurrentWeights if is_recurrent(options) else TransformerWeights
    )
    weights = reader(items, config, options, vocabularies and vocabularies.target.unk)
    if vocabularies is None:
        return None
    conventions = _conventions(folder, vocabularies, config.bos_id)
    if problems:
        return None
    tokenizers = vocabularies.source.tokenizer, vocabularies.target.tokenizer
    return Checkpoint(
        folder.path,
        config,
        Arrays(weights.readers),
        conventions,
        checkpoint_files(_card(folder, languages), *tokenizers) | shortlist,
        weights.quantised,
        bits=8 if weights.quantised else None,
    )


def _num_rows(items: dict[str, Item], name: str) -> int:
    return items[name].shape[0] if name in items else 1  # a missing one is found with the others


def _shortlist(
    folder: MarianFolder, sizes: tuple[int, int], problems: list[str]
) -> dict[str, bytes]:
    if folder.shortlist is None:
        return {}
    found = read_shortlist(folder.shortlist, sizes, problems, is_shared=folder.is_shared)
    return {SHORTLIST_FILE: found or b""}


def _conventions(folder: MarianFolder, vocabularies: _Vocabularies, bos: int) -> Conventions:
    """Sources are a text and </s>; the decoder begins with the zero vector. Beam size,
    normalisation and the longest translation are the configuration's, where it has them.
    """
    options = folder.options
    generation: dict[str, Any] = {
        "max_length_factor": options.number("max-length-factor", MAX_LENGTH_FACTOR)
    }
    if generation["max_length_factor"] <= 0:
        options.refuse("max-length-factor", "must be positive")
    if "beam-size" in options:
        generation["num_beams"] = options.integer("beam-size")
        if generation["num_beams"] < 1:
            options.refuse("beam-size", "must be positive")
    if "normalize" in options and generation.get("num_beams", 1) > 1:
        generation["length_penalty"] = options.number("normalize")
    return Conventions(
        source_suffix=(vocabularies.source.eos,),
        prompt_prefix=(bos,),
        stop=(vocabularies.target.eos,),
        unk=vocabularies.target.unk,
        targets=vocabularies.source.targets,
        generation=generation,
    )


def languages_of(folder: MarianFolder) -> tuple[str, str]:
    """From the names of files (`model.enpt.intgemm.alphas.bin`) or of the folder (`en-pt`)."""
    names: list[tuple[re.Pattern[str], str]] = [
        (PAIR_IN_FILE, path.name) for path in (folder.shortlist, folder.model) if path
    ]
    for pattern, name in (*names, (PAIR_IN_FOLDER, folder.path.resolve().name)):
        if match := pattern.match(name):
            source, target = (part for part in match.groups() if part)
            return source, target
    return UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE


def _card(folder: MarianFolder, languages: tuple[str, str]) -> bytes:
    paths = filter(None, (folder.model, *(folder.vocabularies or ()), folder.shortlist))
    facts = [f"`{path.name}`: {path.stat().st_size:,} bytes" for path in dict.fromkeys(paths)]
    origin = f"A Marian model, {languages[0]} to {languages[1]}, read from:"
    return card_of(folder.path.resolve().name, origin, *facts)
