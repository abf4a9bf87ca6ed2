"""BART (Lewis et al. 2020): post-norm layers, learned positions, a norm of what enters each stack.

It knows no languages: what it was trained to do with a text, to summarise or to translate, it does
to every text.
"""

from export.readers.hugging_face.bart_family import (
    LEARNED_POSITIONS,
    NO_LANGUAGES,
    BartFamily,
    read_decoding,
    read_stacks,
)
from export.readers.hugging_face.folder import Folder
from models.checkpoint import Checkpoint

BART = BartFamily(
    heads=("ForConditionalGeneration", "MTModel", "WithLMHeadModel"),
    fixed={
        "add_bias_logits": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "static_position_embeddings": False,
    },
    default_start="eos_token_id",
    forced_eos=2,
    norm_place="post",
    positions=lambda _: LEARNED_POSITIONS,
    embedding_norm=True,
)


def read_bart(folder: Folder) -> Checkpoint:
    bos = folder.config.integer("bos_token_id")
    if folder.config.flag("force_bos_token_to_be_generated", False):  # its first name
        folder.config.default_to(forced_bos_token_id=bos)
    decoding = read_decoding(BART, folder)
    conventions = decoding.conventions(decoding.prompt, source_prefix=(bos,))
    return read_stacks(BART, folder, decoding, conventions, NO_LANGUAGES)
