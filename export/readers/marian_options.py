"""The options of Marian and Nematus models as configurations of ours.

The options are those in the model itself (`special:model.yml`); what they do stands in marian-dev's
src/models/transformer.h and s2s.h. Options of training are ignored. Nematus (Sennrich et al. 2017)
on Theano keeps its options in `model.npz.json`, and names its weights in its own way, as Marian's
types "amun" and "nematus" do (src/models/amun.h, nematus.h).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from export.readers.common.options import MOST_LAYERS, WIDEST, Options, merge_options, read_options
from export.readers.marian_files import OPTIONS, Item, num_elements
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config

MOST_YAML_BYTES = 2**18  # of a configuration, a thousand of whose lines take 70 ms to read
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


def read_marian_options(items: dict[str, Item], model: Path | None, problems: list[str]) -> Options:
    """Read the YAML among the items, or what Nematus keeps beside the model; empty where there is
    neither or where it is wrong.
    """
    values: Any = {}
    if OPTIONS not in items and model is not None and settings_path(model).is_file():
        return read_nematus(model, problems)
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
    """Raises ValueError."""
    if num_elements(item.shape) > MOST_YAML_BYTES:
        raise ValueError(f"it is larger than {MOST_YAML_BYTES >> 10} KiB")
    return item.read().tobytes().partition(b"\0")[0].decode()


def config_of(options: Options, vocab_sizes: tuple[int, int], common: dict[str, Any]) -> Any:
    """vocab_sizes: of source and target, without the vector that targets begin with.
    common: options of ours that the model does not tell. None where something does not fit.
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


NAMES = {
    "dim_word": "dim-emb",
    "dim": "dim-rnn",
    "enc_recurrence_transition_depth": "enc-cell-depth",
    "dec_base_recurrence_transition_depth": "dec-cell-base-depth",
    "layer_normalisation": "layer-normalization",
}
SUPPORTED_IN_NEMATUS: dict[str, tuple[Any, ...]] = {
    "encoder": ("gru",),
    "decoder": ("gru_cond",),
    "enc_depth": (1,),
    "dec_depth": (1,),
    "factors": (1,),
    "weight_normalisation": (False,),
    "concatenate_lm_decoder": (False,),
    "deep_fusion_lm": ("",),
}
SCALED = 0.1  # version of a model since which dropout leaves nothing to do but in training


def settings_path(model: Path) -> Path:
    """Return the path of the settings beside a model."""
    return model.with_name(f"{model.name}.json")


def read_nematus(model: Path, problems: list[str]) -> Options:
    """Read the options under Marian's names; what this project does not compute is a problem."""
    found = read_options(settings_path(model), problems, is_required=True)
    for name, supported in SUPPORTED_IN_NEMATUS.items():
        found.only(name, *supported)
    if found.flag("use_dropout", False) and found.number("model_version", 0.0) < SCALED:
        found.refuse("use_dropout", f"is not supported where model_version is below {SCALED}")
    values = {theirs: found.values[name] for name, theirs in NAMES.items() if name in found}
    is_tied = found.flag("tie_decoder_embeddings", False)
    is_shared = found.flag("tie_encoder_decoder_embeddings", False)
    ties = {"tied-embeddings-all": is_tied and is_shared}
    ties |= {"tied-embeddings": is_tied, "tied-embeddings-src": is_shared}
    cells = {"enc-cell": "gru-nematus", "dec-cell": "gru-nematus"}
    return Options(found.file, {"type": "nematus", **cells, **values, **ties}, problems)


MARK = "decoder_c_tt"  # Marian adds it for Nematus, which wants it
IGNORED = (MARK, "uidx", "history_errs", "zipped_params")
PARTS = {"prev": "0", "lstm": "1", "ctx": "2"}  # of what the readout sums up
NORM = r"((?:_ln[sb])?)"

T = TypeVar("T")


def _next(number: str, by: int) -> str:
    return str(int(number) + by)


RULES = [
    (
        rf"encoder_(r_)?(Ux?|bx?)_drt_(\d+){NORM}",
        lambda m: f"encoder_bi_{m[1] or ''}cell{_next(m[3], 1)}_{m[2]}{m[4]}",
    ),
    (
        rf"encoder_(r_)?(Ux?|Wx?|bx?|gamma[12]){NORM}",
        lambda m: f"encoder_bi_{m[1] or ''}{m[2]}{m[3]}",
    ),
    (
        rf"decoder_(Ux?|bx?)_nl_drt_(\d+){NORM}",
        lambda m: f"decoder_cell{_next(m[2], 2)}_{m[1]}{m[3]}",
    ),
    (rf"decoder_(Ux?|bx?)_nl{NORM}", lambda m: f"decoder_cell2_{m[1]}{m[2]}"),
    (rf"decoder_Wc(x?){NORM}", lambda m: f"decoder_cell2_W{m[1]}{m[2]}"),
    (rf"decoder_(Ux?|Wx?|bx?){NORM}", lambda m: f"decoder_cell1_{m[1]}{m[2]}"),
    (r"ff_logit_(prev|lstm|ctx)_(\w+)", lambda m: f"decoder_ff_logit_l1_{m[2]}{PARTS[m[1]]}"),
    (r"ff_logit_l1_gamma(\d)", lambda m: f"decoder_ff_logit_l1_gamma{m[1]}"),
    (r"ff_logit_([Wb])", lambda m: f"decoder_ff_logit_l2_{m[1]}"),
    (r"ff_state_(\w+)", lambda m: f"decoder_ff_state_{m[1]}"),
    (r"Wemb_dec", lambda _: "decoder_Wemb"),
]


def marian_names(items: Mapping[str, T], *, has_one_embedding: bool) -> dict[str, T]:
    """Rename the weights of Nematus to those of Marian's s2s; others keep their names."""
    if MARK not in items:
        return dict(items)
    named = {_renamed(name): item for name, item in items.items() if name not in IGNORED}
    if "Wemb" in named and not has_one_embedding:
        named["encoder_Wemb"] = named.pop("Wemb")
    return named


def _renamed(name: str) -> str:
    for pattern, rename in RULES:
        if match := re.fullmatch(pattern, name):
            return rename(match)
    return name
