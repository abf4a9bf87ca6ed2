"""Reads what the descendants of BART have in common: Marian, M2M-100, BART and mBART.

Their tensors have one set of names, and their sizes too. Where norms, positions and language tokens
go is for each family to say.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from export.readers.common.options import MOST_LAYERS, MOST_POSITIONS, WIDEST, Options
from export.readers.common.shapes import STACKS, read_activation, stack_names, transformer_shapes
from export.readers.common.tables import Held, Made, Names, Table, read_weights, then
from export.readers.common.weights import Shape, Tensors, WeightReader
from export.readers.hugging_face.folder import UNTIED, Folder
from models.arrays import Array

LEARNED_POSITIONS: Names = {  # two rows are empty, for fairseq's padding
    f"{stack}.positions": Held(f"model.{stack}.embed_positions", skipped=2) for stack in STACKS
}
PREFIX = "model."
EMBEDDINGS = (  # of one table; files hold some of them
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
NEEDLESS = (
    r"(model\.)?(shared|(encoder|decoder)\.embed_tokens)\.weight|lm_head\.weight",  # repeated
    r"(model\.)?(encoder|decoder)\.version",  # of fairseq's files
    r"(model\.)?(encoder|decoder)\.embed_positions\.weights?",  # that are computed
)


def sizes(folder: Folder, *, default_activation: str, scales: bool) -> dict[str, Any]:
    """Read options of ours that all four families say in the same words.

    scales: whether embeddings are scaled where `scale_embedding` is not said.
    """
    options = folder.config
    for name in ("attention_heads", "ffn_dim"):
        _must_be_equal(options, f"decoder_{name}", f"encoder_{name}")
    num_positions = options.integer("max_position_embeddings", at_most=MOST_POSITIONS)
    return {
        "architecture": "transformer",
        "vocab_size": options.integer("vocab_size"),
        "d_model": options.integer("d_model", at_most=WIDEST),
        "num_heads": options.integer("encoder_attention_heads"),
        "ffn_dim": options.integer("encoder_ffn_dim"),
        "encoder_layers": options.integer("encoder_layers", at_most=MOST_LAYERS),
        "decoder_layers": options.integer("decoder_layers", at_most=MOST_LAYERS),
        "max_source_tokens": num_positions,
        "max_target_tokens": num_positions,
        "positions": {"kind": "learned"},
        "activation": read_activation(options, "activation_function", default_activation),
        "imported": {"embedding_scale": _embedding_scale(options, scales)},
        "tied_embeddings": _is_tied(folder),
        "pad_id": options.integer("pad_token_id"),
    }


def _is_tied(folder: Folder) -> bool:
    """Return whether source, target and output share one table. If the output's table is stored
    with other numbers, it is used whatever the configuration says, as in transformers 5.
    """
    shared, source, target, output = EMBEDDINGS
    tensors = folder.tensors
    tensors.prefix = PREFIX
    if not folder.config.flag("tie_word_embeddings", True):
        if tensors and output not in tensors:
            folder.problems.append(f"{output} is missing, and tie_word_embeddings is false")
        return False
    if any(tensors.differ(name, shared) for name in (source, target)):
        message = "is true, but the tables of source and target differ"
        folder.config.refuse("tie_word_embeddings", message)
    if not any(tensors.differ(name, output) for name in (shared, source, target)):
        return True
    folder.notes.append(UNTIED.format(file=folder.config.file))
    return False


def _must_be_equal(options: Options, name: str, other: str) -> None:
    if options.integer(name) != (expected := options.integer(other)):
        options.refuse(name, f"must be {other} {expected}: unequal sides are not supported")


def _embedding_scale(options: Options, default: bool) -> float:
    scales = options.flag("scale_embedding", default)
    return math.sqrt(options.integer("d_model")) if scales else 1.0


def weights(config: Any, tensors: Tensors, more: Names) -> dict[str, WeightReader]:
    """Find the weights of both stacks and of the vocabulary; `more` are those of the family."""
    names = {**stack_names("model."), **_vocabulary(), **more}
    table = Table(names, needless=NEEDLESS, prefix=PREFIX)
    return read_weights(transformer_shapes(config), table, tensors)


def _vocabulary() -> Names:
    """Name one table for source, target and output, or three; files repeat some of them."""
    shared, source, target, output = EMBEDDINGS
    return {
        "embedding.weight": Held((*EMBEDDINGS, shared)),
        "source_embedding.weight": Held((source, shared)),
        "target_embedding.weight": Held((target, shared)),
        "output.weight": Held((output, target, shared)),
    }


def made_positions(make: Callable[[Shape], Array]) -> Names:
    """Compute one table for both stacks when it is needed; older files hold it too."""
    return {f"{stack}.positions.weight": Made(make) for stack in STACKS}


def output_bias(tensors: Tensors, vocab_size: int) -> WeightReader | None:
    """Read it, [vocab_size], if there is one that is not all zeros."""
    if "final_logits_bias" not in tensors:
        return None
    bias = then(tensors.take("final_logits_bias", (1, vocab_size)), lambda array: array[0])
    return bias if np.any(bias()) else None
