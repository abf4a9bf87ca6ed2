"""Transformers of JoeyNMT: joeynmt/transformer_layers.py, encoders.py and decoders.py."""

from typing import Any

from export.readers.common.options import Options
from export.readers.common.shapes import STACKS, read_activation, transformer_shapes
from export.readers.common.weights import Names
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader, refuse_unequal

SOURCE, TARGET = "src_embed.lut.weight", "trg_embed.lut.weight"
OUTPUT = "decoder.output_layer.weight"
VOCABULARY = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
}
NORMS = {  # of the sublayers, by ours
    "encoder.layers.*.self_attention_norm": "encoder.layers.*.layer_norm",
    "decoder.layers.*.self_attention_norm": "decoder.layers.*.x_layer_norm",
    "decoder.layers.*.cross_attention_norm": "decoder.layers.*.dec_layer_norm",
    "encoder.norm": "encoder.layer_norm",
    "decoder.norm": "decoder.layer_norm",
}
ATTENTIONS = {
    "encoder.layers.*.self_attention": "encoder.layers.*.src_src_att",
    "decoder.layers.*.self_attention": "decoder.layers.*.trg_trg_att",
    "decoder.layers.*.cross_attention": "decoder.layers.*.src_trg_att",
}
PARTS = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
DEFAULT_PLACES = {"encoder": "pre", "decoder": "post"}  # of the norm, where the file says none
EPSILON = 1e-6
SUPPORTED: dict[str, tuple[Any, ...]] = {
    # how often a sublayer's input counts (Wang et al. 2022)
    **{f"model.{stack}.alpha": (1, 1.0) for stack in STACKS},
    "model.encoder.layer_norm": ("pre", "post"),
}


def is_tied(reader: ToolkitReader) -> bool:
    """Return whether source, target and output share one table."""
    flag = reader.options.section("model").flag
    return flag("tied_embeddings", False) and flag("tied_softmax", False)


def embedding_scale(reader: ToolkitReader) -> float | None:
    """Return 1 where embeddings are not multiplied by the root of their size; both sides must
    agree.
    """
    model = reader.options.section("model")
    encoder, decoder = (model.section(stack).section("embeddings") for stack in STACKS)
    is_scaled = encoder.flag("scale", False)
    if not model.flag("tied_embeddings", False):
        decoder.only("scale", is_scaled)
    return None if is_scaled else 1.0


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    model, count = reader.options.section("model"), reader.count_layers
    encoder, decoder = (model.section(stack) for stack in STACKS)
    for name, default in (("num_heads", None), ("activation", "relu")):
        value = encoder.values.get(name, default)
        refuse_unequal(value, decoder.values.get(name, default), decoder, name)
    has_final_norm = reader.has_in_both("layer_norm")
    return {
        "architecture": "transformer",
        "tied_embeddings": is_tied(reader),
        "d_model": reader.dim,
        "num_heads": encoder.integer("num_heads", 4),
        "ffn_dim": reader.matrix_shapes("encoder.layers.0.feed_forward.pwff_layer.0.weight")[0][0],
        "encoder_layers": count("encoder.layers.{}.feed_forward.pwff_layer.0.weight"),
        "decoder_layers": count("decoder.layers.{}.feed_forward.pwff_layer.0.weight"),
        "positions": {"kind": "sinusoidal"},
        "max_source_tokens": LONGEST,
        "max_target_tokens": LONGEST,
        "norm": {"place": _read_norm_place(encoder, decoder, has_final_norm), "epsilon": EPSILON},
        "imported": {"final_norm": has_final_norm, "embedding_scale": embedding_scale(reader)},
        "activation": read_activation(encoder, "activation", "relu"),
    }


def _read_norm_place(encoder: Options, decoder: Options, has_final_norm: bool) -> str:
    """Return where sublayers are normalised. Version 1 had only "pre", and no option."""
    defaults = dict.fromkeys(STACKS, "pre") if has_final_norm else DEFAULT_PLACES
    place = encoder.word("layer_norm", defaults["encoder"])
    refuse_unequal(place, decoder.word("layer_norm", defaults["decoder"]), decoder, "layer_norm")
    return place


def list_names(reader: ToolkitReader, config: Any) -> Names:
    names: dict[str, str] = {**VOCABULARY, **NORMS}
    for stack in STACKS:
        layer = f"{stack}.layers.*"
        names[f"{layer}.feed_forward_norm"] = f"{layer}.feed_forward.layer_norm"
        names[f"{layer}.feed_forward.up"] = f"{layer}.feed_forward.pwff_layer.0"
        names[f"{layer}.feed_forward.down"] = f"{layer}.feed_forward.pwff_layer.3"
    for ours, theirs in ATTENTIONS.items():
        names |= {f"{ours}.{part}": f"{theirs}.{name}" for part, name in PARTS.items()}
    return {**names}


TRANSFORMER = ToolkitModel(
    SUPPORTED,
    read_options,
    transformer_shapes,
    list_names,
    ignored=(r"(encoder|decoder)\.pe\.pe",),  # sinusoids
)
