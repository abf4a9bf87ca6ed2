"""Marian's models as Hugging Face folders, such as those of OPUS-MT: post-norm layers, sinusoids.

A model into several languages has a token of the target's language before the source.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from export.readers.hugging_face.bart_family import (
    VASWANI_POSITIONS,
    BartFamily,
    read_decoding,
    read_stacks,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import (
    MARIAN_TOKEN,
    list_codes,
    read_language_tokens,
)
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import AddedLanguageIds, Conventions

NAME = re.compile(r".*opus-mt-(?:tc-)?(?:(?:big|base|tiny)-)?(\w+)-(\w+)/?")  # of OPUS-MT's models
MARIAN = BartFamily(
    heads=("MTModel", "ForConditionalGeneration"),
    fixed={
        "add_bias_logits": False,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
    },
    default_start="pad_token_id",
    forced_eos=0,
    norm_place="post",
    positions=lambda _: VASWANI_POSITIONS,
)


def read_marian(folder: Folder) -> Checkpoint:
    decoding = read_decoding(MARIAN, folder)
    is_shared = folder.config.flag("share_encoder_decoder_embeddings", True)
    vocabularies = _read_vocabulary_sizes(folder, is_shared)
    tokens = read_language_tokens(folder, MARIAN_TOKEN) if is_shared else {}
    targets = {code: AddedLanguageIds(source_prefix=(id_,)) for code, id_ in tokens.items()}
    conventions = decoding.conventions(decoding.prompt, targets=targets)
    banned, conventions = _take_banned_tokens(conventions)
    values = vocabularies | _read_languages(folder, tokens)
    return read_stacks(MARIAN, folder, decoding, conventions, values, banned)


def _read_vocabulary_sizes(folder: Folder, is_shared: bool) -> dict[str, Any]:
    """Read the sizes of one vocabulary or two; the table of each of two must be stored."""
    options, source = folder.config, folder.config.integer("vocab_size")
    if is_shared:
        return {"vocab_size": source}
    target = options.integer("decoder_vocab_size", source)
    for stack in ("encoder", "decoder") if folder.tensors else ():
        if (name := f"model.{stack}.embed_tokens.weight") not in folder.tensors:
            folder.problems.append(f"{name} is missing")
    return {"source_vocab_size": source, "vocab_size": target, "tied_embeddings": False}


def _read_languages(folder: Folder, targets: Mapping[str, int]) -> dict[str, list[str]]:
    """Read `tokenizer_config.json`, or the model's name: codes as OPUS-MT has them, some of which
    are groups ("roa"). What a target's tokens say comes first.
    """
    name = str(folder.config.get("_name_or_path", ""))
    match = NAME.fullmatch(name) or NAME.fullmatch(folder.path.resolve().name)
    source, target = match.groups() if match else (UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE)
    return {
        "source_languages": [folder.tokenizer.word("source_lang", source)],
        "target_languages": list_codes(targets)
        if targets
        else [folder.tokenizer.word("target_lang", target)],
    }


def _take_banned_tokens(conventions: Conventions) -> tuple[list[int], Conventions]:
    """Take the bad words of one token out of the logits processors: an output bias leaves them no
    probability, as in Marian, which has no such tokens, and costs requests nothing.
    """
    processors = {**conventions.logits_processors}
    words = processors.pop("bad_words_ids", [])
    banned = {word[0] for word in words if len(word) == 1} - {*conventions.stop}
    if others := [word for word in words if len(word) > 1]:
        processors["bad_words_ids"] = others
    return sorted(banned), replace(conventions, logits_processors=processors)
