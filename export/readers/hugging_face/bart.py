"""BART, mBART, mBART-50, M2M-100 and NLLB-200.

BART (Lewis et al. 2020) has post-norm layers, learned positions and a norm of what enters each
stack. It knows no languages: what it was trained to do with a text, to summarise or to translate,
it does to every text.

mBART (Liu et al. 2020) and mBART-50 (Tang et al. 2020) are BART with pre-norm layers and norms at
both ends of each stack. The first puts the source's language after its end and begins the target
with the target's language; the second puts the source's language first and makes the target's the
first token after </s>.

M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022) have pre-norm layers, and sinusoids with the
rates of tensor2tensor, in single precision throughout.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.options import Options, merge_options
from export.readers.common.shapes import sinusoids
from export.readers.common.weights import Computed, Names
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import (
    LEARNED_POSITIONS,
    M2M,
    MARIAN,
    MBART,
    NLLB,
    DecoderTokens,
    by_language,
    codes,
    language_tokens,
    made_positions,
    only_token,
    output_bias,
    sizes,
    weights,
)
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import AddedLanguageIds, Conventions
from models.safetensors import Array

FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
}
HEADS = ("ForConditionalGeneration", "MTModel", "WithLMHeadModel")  # ends of classes' names
FORCED_EOS = 2  # where older files do not say


def read_bart(folder: Folder) -> Checkpoint:
    bos = folder.config.integer("bos_token_id")
    folder.config.default_to(forced_eos_token_id=FORCED_EOS)
    if folder.config.flag("force_bos_token_to_be_generated", False):  # its first name
        folder.config.default_to(forced_bos_token_id=bos)
    decoding = DecoderTokens(folder, default_start="eos_token_id")
    conventions = decoding.conventions(decoding.prompt, source_prefix=(bos,))
    languages = {"source_languages": [UNKNOWN_LANGUAGE], "target_languages": [UNKNOWN_LANGUAGE]}
    return read_stacks(
        folder, FIXED, decoding, conventions, languages | {"norm": {"place": "post"}}
    )


def read_stacks(
    folder: Folder,
    fixed: Mapping[str, Any],
    decoding: DecoderTokens,
    conventions: Conventions,
    more: Mapping[str, Any],
) -> Checkpoint:
    """Read a model whose stacks are BART's. fixed: what its files may say, and nothing else. more:
    of our own configuration.
    """
    options = folder.config
    for name, value in fixed.items():
        options.only(name, value)
    folder.check_head(*HEADS)
    bias = output_bias(folder.tensors, options.integer("vocab_size"))
    config: Any = folder.configured(
        merge_options(
            sizes(folder, default_activation="gelu", scales=False),
            decoding.special_tokens,
            {"imported": {"embedding_norm": True, "output_bias": bias is not None}},
            more,
        )
    )
    made: Names = {} if bias is None else {"output_bias": Computed(lambda _: bias())}
    names = {**LEARNED_POSITIONS, **made}
    return folder.checkpoint(config, weights(config, folder.tensors, names), conventions)


MBART_FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "normalize_before": True,
    "normalize_embedding": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
}


def read_mbart(folder: Folder) -> Checkpoint:
    folder.config.default_to(forced_eos_token_id=FORCED_EOS)
    decoding = DecoderTokens(folder, default_start="eos_token_id")
    conventions = _mbart_conventions(folder, decoding)
    languages = {
        "source_languages": codes(conventions.sources),
        "target_languages": codes(conventions.targets),
    }
    return read_stacks(folder, MBART_FIXED, decoding, conventions, languages)


def _mbart_conventions(folder: Folder, decoding: DecoderTokens) -> Conventions:
    """mBART-50 has a tokenizer of its own; without its name, targets that begin with </s> tell."""
    tokens = language_tokens(folder, MBART)
    kind = folder.tokenizer.word("tokenizer_class", "")
    begins_with_end = decoding.start in decoding.stop and not kind.startswith("MBartTokenizer")
    is_50 = kind.startswith("MBart50") or begins_with_end
    part = "source_prefix" if is_50 else "source_suffix"
    targets = only_token(tokens, decoding.forced if is_50 else decoding.start)
    return decoding.conventions(
        (decoding.start,) if is_50 else (),
        num_forced=1,
        sources=by_language(tokens, lambda token_id: AddedLanguageIds(**{part: (token_id,)})),
        targets=by_language(targets, lambda token_id: AddedLanguageIds(prompt_prefix=(token_id,))),
    )


def read_m2m_100(folder: Folder) -> Checkpoint:
    folder.check_head("ForConditionalGeneration")
    decoding = DecoderTokens(folder, default_start="eos_token_id")
    conventions = _m2m_100_conventions(folder, decoding)
    config: Any = folder.configured(
        sizes(folder, default_activation="relu", scales=True)
        | decoding.special_tokens
        | {"source_languages": codes(conventions.sources)}
        | {"target_languages": codes(conventions.targets)}
    )
    positions = made_positions(partial(sinusoids, first=config.pad_id + 1))
    found = weights(config, folder.tensors, positions)
    return folder.checkpoint(config, found, conventions)


def _m2m_100_conventions(folder: Folder, decoding: DecoderTokens) -> Conventions:
    """NLLB's older form puts the language after the source (`legacy_behaviour`)."""
    tokens = language_tokens(folder, NLLB) or language_tokens(folder, M2M)
    is_suffix = folder.tokenizer.flag("legacy_behaviour", False)
    part = "source_suffix" if is_suffix else "source_prefix"
    targets = only_token(tokens, decoding.forced)
    return decoding.conventions(
        (decoding.start,),
        num_forced=1,
        sources=by_language(tokens, lambda token_id: AddedLanguageIds(**{part: (token_id,)})),
        targets=by_language(targets, lambda token_id: AddedLanguageIds(prompt_prefix=(token_id,))),
    )


NEVER = -1000.0  # an output bias that leaves no probability
NAME = re.compile(r".*opus-mt-(?:tc-)?(?:(?:big|base|tiny)-)?(\w+)-(\w+)/?")  # of OPUS-MT's models
MARIAN_FORCED_EOS = 0  # where older files do not say
POSITIONS = made_positions(partial(sinusoids, rates="vaswani", precision=np.float64))
MARIAN_FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def read_marian(folder: Folder) -> Checkpoint:
    options = folder.config
    for name, value in MARIAN_FIXED.items():
        options.only(name, value)
    folder.check_head("MTModel", "ForConditionalGeneration")
    options.default_to(forced_eos_token_id=MARIAN_FORCED_EOS)
    decoding = DecoderTokens(folder, "pad_token_id")
    shares = options.flag("share_encoder_decoder_embeddings", True)
    vocabularies = _vocabularies(options, shares)
    if not shares:
        _check_tables(folder)
    targets = language_tokens(folder, MARIAN) if shares else {}
    ids = by_language(targets, lambda token_id: AddedLanguageIds(source_prefix=(token_id,)))
    banned, conventions = _banned(decoding.conventions(decoding.prompt, targets=ids))
    bias = output_bias(folder.tensors, decoding.vocab_size)
    config: Any = folder.configured(
        merge_options(
            sizes(folder, default_activation="gelu", scales=False),
            decoding.special_tokens,
            vocabularies,
            _languages(folder, targets),
            {"norm": {"place": "post"}},
            {"imported": {"output_bias": bias is not None or bool(banned)}},
        )
    )
    made = bias or partial(np.zeros, config.vocab_size, np.float32)
    more = {**POSITIONS, "output_bias": Computed(lambda _: _without(banned, made()))}
    return folder.checkpoint(config, weights(config, folder.tensors, more), conventions)


def _check_tables(folder: Folder) -> None:
    """Add a problem for a missing embedding table of a model whose sides share none."""
    for stack in ("encoder", "decoder") if folder.tensors else ():
        if (name := f"model.{stack}.embed_tokens.weight") not in folder.tensors:
            folder.problems.append(f"{name} is missing")


def _vocabularies(options: Options, shares: bool) -> dict[str, Any]:
    source = options.integer("vocab_size")
    if shares:
        return {"vocab_size": source}
    target = options.integer("decoder_vocab_size", source)
    return {"source_vocab_size": source, "vocab_size": target, "tied_embeddings": False}


def _languages(folder: Folder, targets: dict[str, int]) -> dict[str, list[str]]:
    """Read `tokenizer_config.json`, or the model's name: codes as OPUS-MT has them, some of which
    are groups ("roa"). What a target's tokens say comes first.
    """
    name = str(folder.config.get("_name_or_path", ""))
    match = NAME.fullmatch(name) or NAME.fullmatch(folder.path.resolve().name)
    source, target = match.groups() if match else (UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE)
    return {
        "source_languages": [folder.tokenizer.word("source_lang", source)],
        "target_languages": codes(targets)
        if targets
        else [folder.tokenizer.word("target_lang", target)],
    }


def _banned(conventions: Conventions) -> tuple[list[int], Conventions]:
    """Take the bad words of one token out of the logits processors: an output bias leaves them no
    probability, as in Marian, which has no such tokens, and costs requests nothing.
    """
    processors = {**conventions.logits_processors}
    words = processors.pop("bad_words_ids", [])
    banned = {word[0] for word in words if len(word) == 1} - {*conventions.stop}
    if others := [word for word in words if len(word) > 1]:
        processors["bad_words_ids"] = others
    return sorted(banned), replace(conventions, logits_processors=processors)


def _without(banned: list[int], bias: Array) -> Array:
    bias = bias.copy()
    bias[banned] = NEVER
    return bias
