"""T5Gemma (Zhang et al. 2025): an encoder and a decoder with the layers of Gemma 2.

The sides may have different sizes, but one kind of layers. The encoder's window reaches as far to
each side as `sliding_window` says; the decoder's counts the token itself. Tokenizers put <bos>
before a source, and nothing after it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from export.readers.common.decoders.gemma import configure_gemma2, plus_one
from export.readers.common.options import Options
from export.readers.common.shapes import Shapes, attention_shapes, gated_shapes, repeat_layers
from export.readers.common.weights import (
    Change,
    Shape,
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    read_weights,
    scale_by,
)
from export.readers.hugging_face.config_keys import KEYS, OF_CONFIG
from export.readers.hugging_face.folder import CONFIG_FILE, UNTIED, Folder
from export.readers.hugging_face.sentence_transformers import read_ends
from export.readers.hugging_face.translators import Decoding, list_codes
from models.checkpoint import Checkpoint

DEFAULTS = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": 256_000}
SIZES = ("d_model", "num_heads", "num_kv_heads", "head_dim", "ffn_dim")
ALIKE = {  # on both sides, with the keys that say it
    "activation": "hidden_activation",
    "attention_cap": "attn_logit_softcapping",
    "norm_epsilon": "rms_norm_eps",
    "rotary_frequencies": "rope_parameters",
    "rotary_magnitude": "rope_parameters",
    "vocab_size": "vocab_size",
}
TABLE, OUTPUT = "model.decoder.embed_tokens", "lm_head.out_proj"
SUBLAYERS = {  # with the names of what they normalise
    "encoder": {"attention": "self_attn", "feed_forward": "feedforward"},
    "decoder": {"self_attention": "self_attn", "cross_attention": "cross_attn"}
    | {"feed_forward": "feedforward"},
}
NORMS = {"encoder": ("_norm", "_output_norm"), "decoder": ("_norm.input", "_norm.output")}
NO_CHAT = "its chat template is not used: a source is read as it is, without a conversation's turns"
IGNORED = (r".*rotary_emb\.inv_freq",)


def read_t5gemma(folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    folder.check_head("ForConditionalGeneration")
    if "chat_template" in folder.tokenizer or (folder.path / "chat_template.jinja").is_file():
        folder.notes.append(NO_CHAT)
    sections = {stack: _section(folder, stack) for stack in ("encoder", "decoder")}
    of_decoder = sections["decoder"].values
    said = {name: of_decoder[name] for name in DEFAULTS if name in of_decoder}
    folder.config.default_to(**said)
    decoding = Decoding(folder, default_start="bos_token_id")
    sides = {stack: _options(section) for stack, section in sections.items()}
    _check_alike(sections["decoder"], sides)
    config: Any = folder.make_config(
        _configuration(sides)
        | decoding.special_tokens
        | {"tied_embeddings": _is_tied(folder), "pad_id": folder.config.integer("pad_token_id")}
        | {"source_languages": list_codes(()), "target_languages": list_codes(())}
    )
    weights = _weights(config, sections, folder.tensors)
    ends = read_ends(folder)
    conventions = decoding.conventions(decoding.prompt, source_prefix=ends.prefix)
    return folder.checkpoint(config, weights, replace(conventions, source_suffix=ends.suffix))


def _section(folder: Folder, stack: str) -> Options:
    section = folder.config.section(stack)
    section.default_to(max_position_embeddings=8192, num_key_value_heads=4, **DEFAULTS)
    section.only("attention_bias", False)
    section.use(*(name for name in section.values if name in KEYS or OF_CONFIG.fullmatch(name)))
    return section


def _options(section: Options) -> dict[str, Any]:
    """Read a side as Gemma 2, options of `imported` beside the others."""
    values = configure_gemma2(section)
    return values.pop("imported") | values


def _check_alike(decoder: Options, sides: dict[str, dict[str, Any]]) -> None:
    for ours, theirs in ALIKE.items():
        if sides["encoder"].get(ours) != sides["decoder"].get(ours):
            decoder.refuse(theirs, "must be that of the encoder")


def _configuration(sides: dict[str, dict[str, Any]]) -> dict[str, Any]:
    encoder, decoder = sides["encoder"], sides["decoder"]
    return {
        "architecture": "rotary-encoder-decoder",
        "vocab_size": decoder["vocab_size"],
        "encoder_layers": encoder["num_layers"],
        "encoder": {name: encoder[name] for name in SIZES} | _window(encoder, one_more=1),
        "decoder_layers": decoder["num_layers"],
        **{name: decoder[name] for name in (*SIZES, "activation")},
        **_window(decoder),
        "max_source_tokens": encoder["context_length"],
        "max_target_tokens": decoder["context_length"],
        "rotation": {
            "frequencies": decoder["rotary_frequencies"],
            "magnitude": decoder["rotary_magnitude"],
        },
        "norm": {"epsilon": decoder["norm_epsilon"]},
        "attention_cap": decoder.get("attention_cap"),
        "logit_cap": decoder.get("logit_cap"),
    }


def _window(side: dict[str, Any], one_more: int = 0) -> dict[str, Any]:
    without = side.get("layers_without_window", range(side["num_layers"]))
    layers = [layer for layer in range(side["num_layers"]) if layer not in without]
    return {"window": {"size": side["window"] + one_more, "layers": layers} if layers else None}


def _is_tied(folder: Folder) -> bool:
    """If an output table is stored with other numbers, it is used, as in transformers 5."""
    is_tied = folder.config.flag("tie_word_embeddings", True)
    if is_tied and folder.tensors.differ(f"{TABLE}.weight", f"{OUTPUT}.weight"):
        note = UNTIED.format(file=CONFIG_FILE).replace("lm_head", OUTPUT)
        folder.notes.append(note)
        return False
    return is_tied


Layer = dict[str, tuple[str, Shape]]  # of each weight their name and its shape, by our name


def _layer(stack: str, config: Any) -> Layer:
    """Return a layer's. Cross-attention's keys and values are made of the source."""
    side = config.source_encoder if stack == "encoder" else config
    dim, layer = side.d_model, Layer()
    for name, theirs in SUBLAYERS[stack].items():
        matrices = gated_shapes(name, dim, side.ffn_dim)
        if is_attention := name.endswith("attention"):
            matrices = attention_shapes(name, dim, side.num_heads, side.kv_heads, side.head_size)
        for ours, (rows, columns) in matrices.items():
            part = ours.rpartition(".")[2]
            if name == "cross_attention" and part in ("key", "value"):
                columns = config.encoder.d_model
            their_name = f"{theirs}.{part[0]}_proj" if is_attention else f"mlp.{part}_proj"
            layer[ours] = their_name, (rows, columns)
        for end, place in zip(NORMS[stack], ("pre", "post"), strict=True):
            layer[f"{name}{end}"] = f"{place}_{theirs}_layernorm", (dim,)
    return layer


def _weights(
    config: Any, sections: Mapping[str, Options], tensors: StoredTensors
) -> dict[str, WeightReader]:
    """Norms add 1 to their weights. Query weights are scaled where scores are not divided by
    sqrt(head_size), and so are the encoder's embeddings.
    """
    tables = ("embedding",) if config.tied_embeddings else ("target_embedding", "output")
    shapes: Shapes = {f"{name}.weight": (config.vocab_size, config.d_model) for name in tables}
    shapes["encoder.embedding.weight"] = (config.vocab_size, config.encoder.d_model)
    names: dict[Any, Any] = {"embedding": TensorReference((TABLE, OUTPUT, TABLE)), "output": OUTPUT}
    names |= {"target_embedding": TABLE, "encoder.embedding": "model.encoder.embed_tokens"}
    changes: dict[str, Change] = {"encoder.embedding": scale_by(math.sqrt(config.encoder.d_model))}
    for stack, side in (("encoder", config.source_encoder), ("decoder", config)):
        scalar = sections[stack].positive("query_pre_attn_scalar", 256)
        scale, layer = scale_by(math.sqrt(side.head_size / scalar)), _layer(stack, config)
        layer_shapes = {f"{name}.weight": shape for name, (_, shape) in layer.items()}
        shapes |= repeat_layers(f"{stack}.layers", getattr(config, f"{stack}_layers"), layer_shapes)
        shapes[f"{stack}.norm.weight"] = (side.d_model,)
        names[f"{stack}.norm"], changes[f"{stack}.norm"] = f"model.{stack}.norm", plus_one
        for name, (theirs, shape) in layer.items():
            ours = f"{stack}.layers.*.{name}"
            names[ours] = f"model.{stack}.layers.*.{theirs}"
            if len(shape) == 1 or name.endswith("query"):
                changes[ours] = plus_one if len(shape) == 1 else scale
    return read_weights(shapes, Table(names, changes, IGNORED, prefix="model."), tensors)
