"""BART (Lewis et al. 2020) and its descendants: mBART, M2M-100, Marian and PEGASUS.

They share the stacks of layers, the names of tensors and the words of most options. What differs is
a row of a table, one in the file of each family: which options older files have, the place of the
norms, the positions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.options import (
    MOST_POSITIONS,
    Options,
    merge_options,
)
from export.readers.common.shapes import (
    STACKS,
    read_activation,
    sinusoids,
    stack_names,
    transformer_shapes,
)
from export.readers.common.weights import (
    Computed,
    Names,
    Shape,
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    apply_change,
    read_weights,
)
from export.readers.hugging_face.folder import UNTIED, Folder
from export.readers.hugging_face.translators import Decoding, read_stack_sizes
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import Conventions
from models.safetensors import Array

LEARNED_POSITIONS: Names = {  # two rows are empty, for fairseq's padding
    f"{stack}.positions": TensorReference(f"model.{stack}.embed_positions", skipped=2)
    for stack in STACKS
}
PREFIX = "model."
EMBEDDINGS = (  # of one table; files hold some of them
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
OUTPUT_BIAS = "final_logits_bias"
IGNORED = (
    r"(model\.)?(shared|(encoder|decoder)\.embed_tokens)\.weight|lm_head\.weight",  # repeated
    r"(model\.)?(encoder|decoder)\.version",  # of fairseq's files
    r"(model\.)?(encoder|decoder)\.embed_positions\.weights?",  # that are computed
)
NEVER = -1000.0  # an output bias that leaves no probability
NO_LANGUAGES = {"source_languages": [UNKNOWN_LANGUAGE], "target_languages": [UNKNOWN_LANGUAGE]}


def computed_positions(compute: Callable[[Shape], Array]) -> Names:
    """Compute one table for both stacks when it is needed; older files hold it too."""
    return {f"{stack}.positions.weight": Computed(compute) for stack in STACKS}


VASWANI_POSITIONS = computed_positions(partial(sinusoids, rates="vaswani", precision=np.float64))


@dataclass(frozen=True)
class BartFamily:
    """One family.

    heads: ends of the names of its classes.
    fixed: options of older files, with the values that the architecture has and no others.
    default_start: the option whose token begins targets, where `decoder_start_token_id` is missing.
    forced_eos: the token that ends a text whose length ends, where older files do not say; None:
        they do.
    norm_place: of norms, before ("pre") or after ("post") a sublayer.
    positions: returns the names of their tables, for our configuration.
    scales_embedding: whether embeddings are scaled where `scale_embedding` is missing.
    has_output_bias: whether files may have a bias of the output.
    """

    heads: tuple[str, ...]
    fixed: Mapping[str, Any]
    default_start: str
    forced_eos: int | None
    norm_place: str
    positions: Callable[[Any], Names]
    embedding_norm: bool = False
    activation: str = "gelu"
    scales_embedding: bool = False
    has_output_bias: bool = True


def read_decoding(family: BartFamily, folder: Folder) -> Decoding:
    """Check the options for which the family has one value, and read how targets begin and end."""
    options = folder.config
    for name, value in family.fixed.items():
        options.only(name, value)
    folder.check_head(*family.heads)
    if family.forced_eos is not None:
        options.default_to(forced_eos_token_id=family.forced_eos)
    return Decoding(folder, family.default_start)


def read_stacks(
    family: BartFamily,
    folder: Folder,
    decoding: Decoding,
    conventions: Conventions,
    more: Mapping[str, Any],
    banned: Sequence[int] = (),
) -> Checkpoint:
    """Read the configuration and the weights. more: values of our configuration, such as languages.
    banned: tokens that are never produced. Raises CheckpointError with every problem.
    """
    bias = None
    if family.has_output_bias:
        bias = _read_output_bias(folder.tensors, decoding.vocab_size)
    has_bias = bias is not None or bool(banned)
    config: Any = folder.make_config(
        merge_options(
            _read_sizes(family, folder),
            decoding.special_tokens,
            {
                "norm": {"place": family.norm_place},
                "imported": {"embedding_norm": family.embedding_norm, "output_bias": has_bias},
            },
            more,
        )
    )
    names = {**stack_names(PREFIX), **_vocabulary_names(), **family.positions(config)}
    if has_bias:
        read_bias = bias or partial(np.zeros, config.vocab_size, np.float32)
        names["output_bias"] = Computed(lambda _: _ban(banned, read_bias()))
    table = Table(names, ignored=IGNORED, prefix=PREFIX)
    weights = read_weights(transformer_shapes(config), table, folder.tensors)
    return folder.checkpoint(config, weights, conventions)


def _read_sizes(family: BartFamily, folder: Folder) -> dict[str, Any]:
    """Read the options that all families say in the same words."""
    options = folder.config
    sizes = read_stack_sizes(options)
    num_positions = options.integer("max_position_embeddings", at_most=MOST_POSITIONS)
    scale = _read_embedding_scale(options, family.scales_embedding)
    return {
        "architecture": "transformer",
        "vocab_size": options.integer("vocab_size"),
        **sizes,
        "max_source_tokens": num_positions,
        "max_target_tokens": num_positions,
        "positions": {"kind": "learned"},
        "activation": read_activation(options, "activation_function", family.activation),
        "imported": {"embedding_scale": scale, **sizes["imported"]},
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


def _read_embedding_scale(options: Options, default: bool) -> float:
    is_scaled = options.flag("scale_embedding", default)
    return math.sqrt(options.integer("d_model")) if is_scaled else 1.0


def _vocabulary_names() -> Names:
    """Return the names of one table for source, target and output, or of three; some files repeat
    them.
    """
    shared, source, target, output = EMBEDDINGS
    return {
        "embedding.weight": TensorReference((*EMBEDDINGS, shared)),
        "source_embedding.weight": TensorReference((source, shared)),
        "target_embedding.weight": TensorReference((target, shared)),
        "output.weight": TensorReference((output, target, shared)),
    }


def _read_output_bias(tensors: StoredTensors, vocab_size: int) -> WeightReader | None:
    """Return a reader of the output's bias, [vocab_size], if there is one that is not all zeros."""
    if OUTPUT_BIAS not in tensors:
        return None
    bias = apply_change(tensors.take(OUTPUT_BIAS, (1, vocab_size)), lambda array: array[0])
    return bias if np.any(bias()) else None


def _ban(banned: Sequence[int], bias: Array) -> Array:
    """Return the bias with no probability left to these tokens."""
    bias = bias.copy()
    bias[[*banned]] = NEVER
    return bias
