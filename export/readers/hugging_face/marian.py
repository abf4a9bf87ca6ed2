"""Marian in Hugging Face's form: OPUS-MT (Tiedemann and Thottingal 2020).

Post-norm layers; sinusoids whose sines come first and cosines last. <pad>, which begins every
target, is no token of the trained model: `transformers` bans it from the output by `bad_words_ids`,
here it has no probability, as in Marian itself.
"""

import re
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.options import Options, joined
from export.readers.common.shapes import sinusoids
from export.readers.common.tables import Made
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import (
    MARIAN,
    Decoding,
    by_language,
    codes,
    language_tokens,
    made_positions,
    output_bias,
    sizes,
    weights,
)
from models.arrays import Array
from models.conventions import LanguageIds
from models.storage.checkpoint import UNKNOWN_LANGUAGE, Checkpoint

NEVER = -1000.0  # an output bias that leaves no probability
NAME = re.compile(r".*opus-mt-(?:tc-)?(?:(?:big|base|tiny)-)?(\w+)-(\w+)/?")  # of OPUS-MT's models
FORCED_EOS = 0  # where older files do not say
POSITIONS = made_positions(partial(sinusoids, rates="vaswani", precision=np.float64))
FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "extra_pos_embeddings": 2,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def read(folder: Folder) -> Checkpoint:
    options = folder.config
    for name, value in FIXED.items():
        options.only(name, value)
    folder.check_head("MTModel", "ForConditionalGeneration")
    options.default_to(forced_eos_token_id=FORCED_EOS)
    decoding = Decoding(folder, "pad_token_id", "bad_words_ids")
    decoding.options.use("renormalize_logits")  # what is banned has no probability
    banned = _banned(decoding)
    shares = options.flag("share_encoder_decoder_embeddings", True)
    vocabularies = _vocabularies(options, shares)
    if not shares:
        _check_tables(folder)
    targets = language_tokens(folder, MARIAN) if shares else {}
    bias = output_bias(folder.tensors, decoding.vocab_size)
    config: Any = folder.configured(
        joined(
            sizes(folder, default_activation="gelu", scales=False),
            decoding.special_tokens,
            vocabularies,
            _languages(folder, targets),
            {"norm": {"place": "post"}},
            {"imported": {"output_bias": bias is not None or bool(banned)}},
        )
    )
    made = bias or partial(np.zeros, config.vocab_size, np.float32)
    more = {**POSITIONS, "output_bias": Made(lambda _: _without(banned, made()))}
    ids = by_language(targets, lambda token_id: LanguageIds(source_prefix=(token_id,)))
    found = weights(config, folder.tensors, more)
    return folder.checkpoint(config, found, decoding.conventions(decoding.prompt, targets=ids))


def _check_tables(folder: Folder) -> None:
    """Note a missing table of words of a model whose two sides share none."""
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


def _banned(decoding: Decoding) -> list[int]:
    """Read the tokens of `bad_words_ids`; sequences of several are not supported."""
    words = decoding.options.get("bad_words_ids", [])
    if not isinstance(words, list) or not all(map(_is_token, words)):
        decoding.options.refuse("bad_words_ids")
        return []
    banned = [token_id for (token_id,) in words]
    decoding.must_be_tokens("bad_words_ids", banned)
    return banned


def _is_token(word: Any) -> bool:
    return isinstance(word, list) and len(word) == 1 and type(word[0]) is int


def _without(banned: list[int], bias: Array) -> Array:
    bias = bias.copy()
    bias[banned] = NEVER
    return bias
