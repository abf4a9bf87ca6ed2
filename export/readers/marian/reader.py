"""The model in a Marian or Bergamot folder as a checkpoint."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from export.readers.common.checkpoint_files import checkpoint_files, write_card
from export.readers.common.options import Options, limit_split_tokens
from export.readers.marian.folder import MarianFolder, find_files
from export.readers.marian.model_files import Item, read_archive, read_binary
from export.readers.marian.nematus import rename_nematus_weights
from export.readers.marian.options import is_recurrent, make_config, read_model_options
from export.readers.marian.recurrent_weights import RecurrentWeights
from export.readers.marian.shortlists import read_shortlist
from export.readers.marian.transformer_weights import TransformerWeights
from export.readers.marian.vocabularies import MarianVocabulary, read_vocabulary
from export.readers.marian.weights import MarianWeights, embedding_names
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.safetensors import Arrays

SHORTLIST_FILE = "shortlist.safetensors"
PAIR_IN_FILE = re.compile(r"(?:lex\.\d+\.\d+|model|vocab|srcvocab)\.([a-z]{2})-?([a-z]{2})\.")
PAIR_IN_FOLDER = re.compile(r"(?:^|.*-)([a-z]{2,3})-([a-z]{2,3})$|^([a-z]{2})([a-z]{2})(?:[-.]|$)")
MAX_LENGTH_FACTOR = 3.0  # Marian's default: tokens of a translation to one of its source


class _Vocabularies(NamedTuple):
    source: MarianVocabulary
    target: MarianVocabulary


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the model, its weights still unread. Raises CheckpointError with every problem."""
    problems: list[str] = []
    folder = find_files(path, problems)
    items = _read_items(folder, problems)
    if items:
        checkpoint = _make_checkpoint(folder, items, problems)
    else:  # report what is wrong with the vocabularies, too
        checkpoint = None
        _read_vocabularies(folder, None, problems)
    if problems or checkpoint is None:
        raise CheckpointError(path, list(dict.fromkeys(problems)))
    return checkpoint


def _read_items(folder: MarianFolder, problems: list[str]) -> dict[str, Item]:
    if folder.model is None:
        return {}
    if folder.model.suffix == ".npz":
        return read_archive(folder.model, problems)
    return read_binary(folder.model, problems)


def _read_vocabularies(
    folder: MarianFolder, sizes: tuple[int, int] | None, problems: list[str]
) -> _Vocabularies | None:
    """Read the vocabularies. sizes: how many words of source and target the model has."""
    if folder.vocabularies is None:
        return None
    source, target = (
        read_vocabulary(path, side, size, problems)
        for path, side, size in zip(
            folder.vocabularies, ("source", "target"), sizes or (None, None), strict=True
        )
    )
    return _Vocabularies(source, target) if source and target else None


def _make_checkpoint(
    folder: MarianFolder, items: dict[str, Item], problems: list[str]
) -> Checkpoint | None:
    options = read_model_options(items, folder.model, problems)
    source, target = embedding_names(options)
    items = rename_nematus_weights(items, has_one_embedding=source == target)
    sizes = _num_rows(items, source), _num_rows(items, target)
    vocabularies = _read_vocabularies(folder, sizes, problems)
    languages = guess_languages(folder)
    shortlist = {}
    if folder.shortlist is not None:
        has_one_vocabulary = folder.has_one_vocabulary
        data = read_shortlist(folder.shortlist, sizes, problems, is_shared=has_one_vocabulary)
        shortlist[SHORTLIST_FILE] = data or b""
    config = make_config(
        options,
        sizes,
        {
            "source_languages": [languages[0]],
            "target_languages": [languages[1]],
            "shortlist": folder.shortlist is not None,
            "eos_id": vocabularies.target.eos if vocabularies else 0,
            "split_tokens": _read_split_tokens(folder.options),
        },
    )
    if config is None:
        return None
    reader: type[MarianWeights[Any]] = (
        RecurrentWeights if is_recurrent(options) else TransformerWeights
    )
    weights = reader(items, config, options, vocabularies and vocabularies.target.unk)
    if vocabularies is None:
        return None
    conventions = _make_conventions(folder.options, vocabularies, config.bos_id)
    if problems:
        return None
    tokenizers = vocabularies.source.tokenizer, vocabularies.target.tokenizer
    return Checkpoint(
        folder.path,
        config,
        Arrays(weights.readers),
        conventions,
        checkpoint_files(_write_card(folder, languages), *tokenizers) | shortlist,
        weights.quantised,
        bits=8 if weights.quantised else None,
    )


def _read_split_tokens(options: Options) -> int | None:
    """Return the length at which bergamot-translator cuts sentences, or that of the longest that
    Marian reads, where that is short.
    """
    if "max-length-break" in options:
        return options.integer("max-length-break") or None
    return limit_split_tokens(options.get("max-length"))


def _num_rows(items: dict[str, Item], name: str) -> int:
    return items[name].shape[0] if name in items else 1  # a missing one is reported with the others


def _make_conventions(options: Options, vocabularies: _Vocabularies, bos: int) -> Conventions:
    """Sources are a text and </s>; the decoder begins with the zero vector. Beam size,
    normalisation and the longest translation are the configuration's, where it has them.
    """
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


def guess_languages(folder: MarianFolder) -> tuple[str, str]:
    """Return source and target from the names of files (`model.enpt.intgemm.alphas.bin`) or of the
    folder (`en-pt`).
    """
    names: list[tuple[re.Pattern[str], str]] = [
        (PAIR_IN_FILE, path.name) for path in (folder.shortlist, folder.model) if path
    ]
    for pattern, name in (*names, (PAIR_IN_FOLDER, folder.path.resolve().name)):
        if match := pattern.match(name):
            source, target = (part for part in match.groups() if part)
            return source, target
    return UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE


def _write_card(folder: MarianFolder, languages: tuple[str, str]) -> bytes:
    paths = filter(None, (folder.model, *(folder.vocabularies or ()), folder.shortlist))
    facts = [f"`{path.name}`: {path.stat().st_size:,} bytes" for path in dict.fromkeys(paths)]
    origin = f"A Marian model, {languages[0]} to {languages[1]}, read from:"
    return write_card(folder.path.resolve().name, origin, *facts)
