"""What the descendants of BART have in common: Marian, M2M-100, BART and mBART.

Their tensors have one set of names, and their sizes too. Where norms, positions and language tokens
go is for each family to say.
"""

import math
from typing import Any

import numpy as np

from export.readers.hugging_face.options import (
    MOST_LAYERS,
    MOST_POSITIONS,
    WIDEST,
    Options,
)
from export.readers.hugging_face.tensors import Source, Tensors, rows, then

ACTIVATIONS = {  # theirs -> ours
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
OFFSET = 2  # rows that learned positions leave empty, for fairseq's padding
LINEAR = {  # of every layer, theirs -> ours
    "self_attn.q_proj": "self_attention.query",
    "self_attn.k_proj": "self_attention.key",
    "self_attn.v_proj": "self_attention.value",
    "self_attn.out_proj": "self_attention.output",
}
NORMS = {"self_attn_layer_norm": "self_attention_norm", "final_layer_norm": "feed_forward_norm"}
CROSS_LINEAR = {
    theirs.replace("self_attn", "encoder_attn"): ours.replace("self_", "cross_")
    for theirs, ours in LINEAR.items()
}
CROSS_NORMS = {"encoder_attn_layer_norm": "cross_attention_norm"}
EMBEDDINGS = (  # of one table; files hold some of them
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)


def sizes(options: Options, *, default_activation: str, scales: bool) -> dict[str, Any]:
    """Options of ours that all four families say in the same words.

    scales: whether embeddings are scaled where `scale_embedding` is not said.
    """
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
        "positions": "learned",
        "activation": activation(options, "activation_function", default_activation),
        "embedding_scale": _embedding_scale(options, scales),
        "tied_embeddings": options.flag("tie_word_embeddings", True),
        "pad_id": options.integer("pad_token_id"),
    }


def activation(options: Options, name: str, default: str) -> str:
    word = options.word(name, default)
    if word not in ACTIVATIONS:
        options.refuse(name)
    return ACTIVATIONS.get(word, "relu")


def _must_be_equal(options: Options, name: str, other: str) -> None:
    if options.integer(name) != (expected := options.integer(other)):
        options.refuse(name, f"must be {other} {expected}: unequal sides are not supported")


def _embedding_scale(options: Options, default: bool) -> float:
    scales = options.flag("scale_embedding", default)
    return math.sqrt(options.integer("d_model")) if scales else 1.0


def layers(config: Any, tensors: Tensors) -> dict[str, Source]:
    """Weights of all layers, by our names."""
    found: dict[str, Source] = {}
    for layer in range(config.encoder_layers):
        found |= _layer(config, tensors, f"encoder.layers.{layer}", LINEAR, NORMS)
    for layer in range(config.decoder_layers):
        linear, norms = LINEAR | CROSS_LINEAR, NORMS | CROSS_NORMS
        found |= _layer(config, tensors, f"decoder.layers.{layer}", linear, norms)
    return found


def _layer(
    config: Any, tensors: Tensors, layer: str, linear: dict[str, str], norms: dict[str, str]
) -> dict[str, Source]:
    dim, ffn_dim = config.d_model, config.ffn_dim
    shapes = dict.fromkeys(linear.items(), (dim, dim))
    shapes["fc1", "feed_forward.up"] = (ffn_dim, dim)
    shapes["fc2", "feed_forward.down"] = (dim, ffn_dim)
    found: dict[str, Source] = {}
    for (theirs, ours), shape in shapes.items():
        found[f"{layer}.{ours}.weight"] = tensors.take(f"model.{layer}.{theirs}.weight", *shape)
        found[f"{layer}.{ours}.bias"] = tensors.take(f"model.{layer}.{theirs}.bias", shape[0])
    for theirs, ours in norms.items():
        found |= _norm(tensors, f"model.{layer}.{theirs}", f"{layer}.{ours}", dim)
    return found


def stack_norms(config: Any, tensors: Tensors, theirs: str, ours: str) -> dict[str, Source]:
    """A norm that the encoder and the decoder have each."""
    dim = config.d_model
    found: dict[str, Source] = {}
    for stack in ("encoder", "decoder"):
        found |= _norm(tensors, f"model.{stack}.{theirs}", f"{stack}.{ours}", dim)
    return found


def _norm(tensors: Tensors, theirs: str, ours: str, dim: int) -> dict[str, Source]:
    parts = ("weight", "bias")
    return {f"{ours}.{part}": tensors.take(f"{theirs}.{part}", dim) for part in parts}


def learned_positions(config: Any, tensors: Tensors) -> dict[str, Source]:
    """Tables of both stacks, without the rows that nothing uses."""
    end, found = config.max_source_tokens + OFFSET, {}
    for stack in ("encoder", "decoder"):
        table = tensors.take(f"model.{stack}.embed_positions.weight", end, config.d_model)
        found[f"{stack}.positions.weight"] = rows(table, OFFSET, end)
    return found


def fixed_positions(tensors: Tensors, table: Source) -> dict[str, Source]:
    """One table for both stacks, computed when it is needed; older files hold it too."""
    tensors.drop(r"(model\.)?(encoder|decoder)\.embed_positions\.weights?")
    return {f"{stack}.positions.weight": table for stack in ("encoder", "decoder")}


def embeddings(config: Any, tensors: Tensors) -> dict[str, Source]:
    """One table for source, target and output, or three; what files repeat of them is dropped."""
    shared, source, target, output = EMBEDDINGS
    size, dim = config.vocab_size, config.d_model
    if config.tied_embeddings:
        name = next((name for name in EMBEDDINGS if name in tensors), shared)
        found = {"embedding.weight": tensors.take(name, size, dim)}
    else:
        source, target = (each if each in tensors else shared for each in (source, target))
        output = output if output in tensors else target
        found = {
            "source_embedding.weight": tensors.take(source, config.source_vocabulary, dim),
            "target_embedding.weight": tensors.take(target, size, dim),
            "output.weight": tensors.take(output, size, dim),
        }
    tensors.drop(r"(model\.)?(shared|(encoder|decoder)\.embed_tokens)\.weight|lm_head\.weight")
    tensors.drop(r"(model\.)?(encoder|decoder)\.version")  # of fairseq's files
    return found


def output_bias(tensors: Tensors, vocab_size: int) -> Source | None:
    """[vocab_size], if there is one that is not all zeros."""
    if "final_logits_bias" not in tensors:
        return None
    bias = then(tensors.take("final_logits_bias", 1, vocab_size), lambda array: array[0])
    return bias if np.any(bias()) else None
