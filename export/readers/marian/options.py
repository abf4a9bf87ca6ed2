"""The options of Marian models as configurations of ours.

The options are those in the model itself (`special:model.yml`); what they do stands in marian-dev's
src/models/transformer.h and s2s.h. Options of training are ignored.
"""

from pathlib import Path
from typing import Any

import yaml

from export.readers.common.options import (
    MOST_LAYERS,
    MOST_YAML_BYTES,
    WIDEST,
    Options,
    merge_options,
)
from export.readers.marian.model_files import OPTIONS, Item, num_elements
from export.readers.marian.nematus import read_nematus_options, settings_path
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config

EPSILON = 1e-6  # of layer normalisation, in every Marian model
MAX_SOURCE_TOKENS = 512  # Marian has no limit of its own; it was trained on fewer
MAX_TARGET_TOKENS = 1024

# options that change what is computed, and the values that are computed here
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "lemma-dependency": ("",),
    "factors-combine": ("sum",),
    "right-left": (False,),
    "input-types": ([], ["sequence", "sequence"]),
}
SUPPORTED_IN_TRANSFORMERS: dict[str, tuple[Any, ...]] = {
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": ("relu", "swish", "gelu"),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
}
RECURRENT = ("s2s", "amun", "nematus")
TYPES = ("transformer", *RECURRENT)
CELLS = {"gru": "gru", "gru-nematus": "gru", "lstm": "lstm", "tanh": "rnn"}
ENCODERS = {
    "bidirectional": "bidirectional",
    "alternating": "alternating",
    "bi-unidirectional": "bidirectional-first",
}
# what happens before and after a sublayer: dropout, addition of its input, normalisation
NORMS = {("", "an"): "post", ("n", "a"): "pre"}
TRAINED_POSITIONS = ("transformer-train-position-embeddings", "transformer-train-positions")


def read_model_options(items: dict[str, Item], model: Path | None, problems: list[str]) -> Options:
    """Read the YAML among the items, or what Nematus keeps beside the model; empty where there is
    neither or where it is wrong.
    """
    values: Any = {}
    if OPTIONS not in items and model is not None and settings_path(model).is_file():
        return read_nematus_options(model, problems)
    if OPTIONS not in items:
        problems.append(f"{OPTIONS} is missing: the model does not say what it is")
    else:
        try:
            values = yaml.safe_load(_text(items[OPTIONS]))
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            problems.append(f"{OPTIONS} is no YAML: {error}")
    if not isinstance(values, dict):
        problems.append(f"{OPTIONS}: expected options, found {type(values).__name__}")
        values = {}
    return Options(OPTIONS, {str(name): value for name, value in values.items()}, problems)


def _text(item: Item) -> str:
    """Raise ValueError."""
    if num_elements(item.shape) > MOST_YAML_BYTES:
        raise ValueError(f"it is larger than {MOST_YAML_BYTES >> 10} KiB")
    return item.read().tobytes().partition(b"\0")[0].decode()


def make_config(options: Options, vocab_sizes: tuple[int, int], common: dict[str, Any]) -> Any:
    """Return our configuration; None, and problems, where something does not fit.

    vocab_sizes: of source and target, without the vector that targets begin with.
    common: options of ours that the model does not say.
    """
    for name, supported in SUPPORTED.items():
        options.only(name, *supported)
    options.only("type", *TYPES)
    source_size, target_size = vocab_sizes
    is_tied = options.flag("tied-embeddings-all", False)
    vocabulary = {
        "vocab_size": target_size + 1,
        "source_vocab_size": target_size + 1 if is_tied else source_size,
        "tied_embeddings": is_tied,
        "pad_id": 0,
        "bos_id": target_size,
        "max_source_tokens": MAX_SOURCE_TOKENS,
        "max_target_tokens": MAX_TARGET_TOKENS,
    }
    network = _recurrent(options) if is_recurrent(options) else _transformer(options)
    return _parse({**vocabulary, **network, **common}, options)


def is_recurrent(options: Options) -> bool:
    """Return whether the model is a recurrent network and not a Transformer."""
    return options.values.get("type") in RECURRENT


def _recurrent(options: Options) -> dict[str, Any]:
    """Read the options of src/models/s2s.h; amun and nematus are special cases of it."""
    for name, supported in (("enc-cell", CELLS), ("dec-cell", CELLS), ("enc-type", ENCODERS)):
        options.only(name, *supported)
    cell, encoder = options.word("enc-cell", "gru"), options.word("enc-type", "bidirectional")
    options.only("dec-cell", cell)
    dim = options.integer("dim-emb", at_most=WIDEST)
    return {
        "architecture": "nematus",
        "cell": CELLS.get(cell, "gru"),
        "embedding_dim": dim,
        "embedding_scale": 1.0,
        "readout_dim": dim,
        "hidden_dim": options.integer("dim-rnn", at_most=WIDEST),
        "encoder": ENCODERS.get(encoder, "bidirectional"),
        "encoder_layers": options.integer("enc-depth", 1, at_most=MOST_LAYERS),
        "encoder_transitions": options.integer("enc-cell-depth", 1, at_most=MOST_LAYERS),
        "decoder_layers": options.integer("dec-depth", 1, at_most=MOST_LAYERS),
        "decoder_transitions": options.integer("dec-cell-base-depth", 2, at_most=MOST_LAYERS),
        "higher_transitions": options.integer("dec-cell-high-depth", 1, at_most=MOST_LAYERS),
        "skip": options.flag("skip", False),
        "layer_norm": _layer_norm(options, cell),
    }


def _layer_norm(options: Options, cell: str) -> str:
    """Return which numbers are normalised together. Marian's other combinations compute nothing
    sensible.
    """
    if not options.flag("layer-normalization", False):
        return "none"
    is_nematus = options.values.get("type") == "nematus"
    if cell == "tanh" or is_nematus != (cell == "gru-nematus"):
        options.refuse("layer-normalization", f"is not supported with enc-cell {cell}")
    return "gates" if is_nematus else "cell"


def _transformer(options: Options) -> dict[str, Any]:
    for name, supported in SUPPORTED_IN_TRANSFORMERS.items():
        options.only(name, *supported)
    has_ssru = options.word("transformer-decoder-autoreg", "self-attention") == "rnn"
    if has_ssru:
        options.only("dec-cell", "ssru")
        options.only("layer-normalization", False)
    architecture = {"architecture": "transformer-ssru" if has_ssru else "transformer"}
    return merge_options(architecture, _sizes(options), _norms(options))


def _sizes(options: Options) -> dict[str, Any]:
    activation = options.word("transformer-ffn-activation", "relu")
    sizes: dict[str, Any] = {
        "d_model": options.integer("dim-emb", at_most=WIDEST),
        "num_heads": options.integer("transformer-heads"),
        "ffn_dim": options.integer("transformer-dim-ffn"),
        "encoder_layers": options.integer("enc-depth", at_most=MOST_LAYERS),
        "decoder_layers": options.integer("dec-depth", at_most=MOST_LAYERS),
        "activation": "swish" if activation == "gelu" else activation,  # see `weights`
        "positions": {"kind": "learned"},
        "imported": {"output_bias": True},
    }
    options.only("transformer-decoder-dim-ffn", 0, sizes["ffn_dim"])
    if has_trained_positions(options):
        sizes["imported"]["embedding_scale"] = 1.0
    return sizes


def has_trained_positions(options: Options) -> bool:
    return any(options.flag(name, False) for name in TRAINED_POSITIONS)


def _norms(options: Options) -> dict[str, Any]:
    def steps(name: str, default: str = "") -> str:
        return options.word(f"transformer-{name}", default).replace("d", "")

    steps_of_norm = steps("preprocess"), steps("postprocess", "dan")
    if steps_of_norm not in NORMS:
        options.refuse("transformer-preprocess", "is not supported with this")
        options.refuse("transformer-postprocess")
    for name in ("postprocess-emb", "postprocess-top"):
        if steps(name) not in ("", "n"):
            options.refuse(f"transformer-{name}")
    return {
        "norm": {"place": NORMS.get(steps_of_norm, "post"), "epsilon": EPSILON},
        "imported": {
            "embedding_norm": steps("postprocess-emb") == "n",
            "final_norm": steps("postprocess-top") == "n",
        },
    }


def _parse(values: dict[str, Any], options: Options) -> AnyConfig | None:
    try:
        return parse_config(values)
    except ModelConfigError as error:
        options.problems += [f"{options.file}: {problem}" for problem in error.problems]
    return None
