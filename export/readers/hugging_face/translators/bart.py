"""BART (Lewis et al. 2020): post-norm layers, learned positions, a norm of what enters each stack.

It knows no languages. What it was trained to do with a text, to sum it up or to translate it, it
does to every text.
"""

from collections.abc import Mapping
from typing import Any

from export.readers.common.options import joined
from export.readers.common.tables import Made, Names
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators.decoding import Decoding
from export.readers.hugging_face.translators.stacks import (
    LEARNED_POSITIONS,
    output_bias,
    sizes,
    weights,
)
from models.conventions import Conventions
from models.storage.checkpoint import UNKNOWN_LANGUAGE, Checkpoint

FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "extra_pos_embeddings": 2,
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
}
HEADS = ("ForConditionalGeneration", "MTModel", "WithLMHeadModel")  # ends of classes' names
FORCED_EOS = 2  # where older files do not say


def read(folder: Folder) -> Checkpoint:
    folder.config.default_to(forced_eos_token_id=FORCED_EOS)
    decoding = Decoding(folder, default_start="eos_token_id")
    bos = folder.config.integer("bos_token_id")
    conventions = decoding.conventions(decoding.prompt, source_prefix=(bos,))
    languages = {"source_languages": [UNKNOWN_LANGUAGE], "target_languages": [UNKNOWN_LANGUAGE]}
    return read_stacks(
        folder, FIXED, decoding, conventions, languages | {"norm": {"place": "post"}}
    )


def read_stacks(
    folder: Folder,
    fixed: Mapping[str, Any],
    decoding: Decoding,
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
        joined(
            sizes(folder, default_activation="gelu", scales=False),
            decoding.special_tokens,
            {"imported": {"embedding_norm": True, "output_bias": bias is not None}},
            more,
        )
    )
    made: Names = {} if bias is None else {"output_bias": Made(lambda _: bias())}
    names = {**LEARNED_POSITIONS, **made}
    return folder.checkpoint(config, weights(config, folder.tensors, names), conventions)
