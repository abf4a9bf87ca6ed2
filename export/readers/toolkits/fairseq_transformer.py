"""Transformers of fairseq: models/transformer and modules/transformer_layer.py."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from export.readers.common.shapes import (
    STACKS,
    read_activation,
    sinusoids,
    stack_names,
    transformer_shapes,
)
from export.readers.common.weights import Computed, Names, TensorReference
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader, refuse_unequal

FIRST_POSITION = 2  # positions count on from the padding's id, which is 1
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")  # now and before 0.9
OLDER_NORMS = {  # once they were numbered
    "encoder": ("self_attention_norm", "feed_forward_norm"),
    "decoder": ("self_attention_norm", "cross_attention_norm", "feed_forward_norm"),
}
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "adaptive_input": (False,),
    "no_cross_attention": (False,),
    "cross_self_attention": (False,),
    "no_token_positional_embeddings": (False,),
    "character_embeddings": (False,),
    "adaptive_softmax_cutoff": (),
}


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    options, count = reader.options, reader.count_layers
    is_prenorm = _read_equal(reader, "normalize_before", False)
    is_unscaled = options.flag("no_scale_embedding", False)
    return {
        "architecture": "transformer",
        "tied_embeddings": options.flag("share_all_embeddings", False),
        "d_model": reader.dim,
        "num_heads": _read_equal(reader, "attention_heads", 8),
        "ffn_dim": reader.matrix_shapes("encoder.layers.0.fc1.weight")[0][0],
        "encoder_layers": count("encoder.layers.{}.fc1.weight"),
        "decoder_layers": count("decoder.layers.{}.fc1.weight"),
        "positions": {"kind": "learned"},
        "max_source_tokens": _num_positions(reader, "encoder", "max_source_positions"),
        "max_target_tokens": _num_positions(reader, "decoder", "max_target_positions"),
        "norm": {"place": "pre" if is_prenorm else "post"},
        "activation": read_activation(options, "activation_fn", "relu"),
        "imported": {
            "final_norm": reader.has_in_both("layer_norm"),
            "embedding_norm": reader.has_in_both("layernorm_embedding"),
            "embedding_scale": 1.0 if is_unscaled else None,
        },
    }


def _read_equal(reader: ToolkitReader, name: str, default: int) -> int:
    """Read an option that both sides must agree on; a flag if the default is."""
    options = reader.options
    read: Any = options.flag if isinstance(default, bool) else options.integer
    encoder, decoder = (read(f"{stack}_{name}", default) for stack in STACKS)
    refuse_unequal(encoder, decoder, options, f"decoder_{name}")
    return encoder


def _has_learned_positions(reader: ToolkitReader) -> bool:
    return bool(_read_equal(reader, "learned_pos", False))


def _num_positions(reader: ToolkitReader, stack: str, option: str) -> int:
    if _has_learned_positions(reader):
        [table] = reader.matrix_shapes(f"{stack}.embed_positions.weight")
        return max(table[0] - FIRST_POSITION, 0)
    return min(reader.options.integer(option, LONGEST), LONGEST)


def list_names(reader: ToolkitReader, config: Any) -> Names:
    names = stack_names()
    is_shared = reader.options.flag("share_decoder_input_output_embed", False)
    return {
        **names,
        "embedding.weight": TARGET,
        "source_embedding.weight": SOURCE,
        "target_embedding.weight": TARGET,
        # The target's table for a shared output, which the file need not repeat.
        "output.weight": TensorReference((*OUTPUTS, TARGET) if is_shared else OUTPUTS[::-1]),
        **_older_norms(names),
        **_joined_projections(reader),
        **{f"{stack}.positions": _positions(reader, stack) for stack in STACKS},
    }


def _older_norms(names: Mapping[str, str]) -> Names:
    older = {
        f"{stack}.layers.*.{name}": f"{stack}.layers.*.layer_norms.{number}"
        for stack, norms in OLDER_NORMS.items()
        for number, name in enumerate(norms)
    }
    return {ours: TensorReference((theirs, names[ours])) for ours, theirs in older.items()}


def _joined_projections(reader: ToolkitReader) -> Names:
    """Before 0.9 queries, keys and values were one matrix."""
    if not any(".self_attn.in_proj_" in name for name in reader.tensors.stored):
        return {}
    parts = ("query", "key", "value")
    return {
        tuple(f"{stack}.layers.*.{ours}.{part}" for part in parts): TensorReference(
            f"{stack}.layers.*.{theirs}.in_proj_{{}}"
        )
        for stack in STACKS
        for theirs, ours in ATTENTIONS.items()
    }


def _positions(reader: ToolkitReader, stack: str) -> TensorReference | Computed:
    if _has_learned_positions(reader):
        return TensorReference(f"{stack}.embed_positions", skipped=FIRST_POSITION)
    return Computed(partial(sinusoids, first=FIRST_POSITION))


TRANSFORMER = ToolkitModel(
    SUPPORTED,
    read_options,
    transformer_shapes,
    list_names,
    ignored=(
        r"(encoder|decoder)\.version",
        r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)",
        # copies for torch's fused encoder layers (0.12)
        r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
    ),
)
