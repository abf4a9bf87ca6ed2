"""Reads the options that Nematus keeps beside a model, `model.npz.json`, as Marian's.

Nematus (Sennrich et al. 2017) on Theano is meant, whose weights lie in `model.npz`. Its networks of
several layers have names and directions of their own, which Marian does not read either.
"""

from pathlib import Path
from typing import Any

from export.readers.common.options import Options, read_options

NAMES = {
    "dim_word": "dim-emb",
    "dim": "dim-rnn",
    "enc_recurrence_transition_depth": "enc-cell-depth",
    "dec_base_recurrence_transition_depth": "dec-cell-base-depth",
    "layer_normalisation": "layer-normalization",
}
SUPPORTED: dict[str, tuple[Any, ...]] = {
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
    """Name the file beside a model."""
    return model.with_name(f"{model.name}.json")


def read_nematus(model: Path, problems: list[str]) -> Options:
    """Read the options under Marian's names; what this project does not compute is a problem."""
    found = read_options(settings_path(model), problems, is_required=True)
    for name, supported in SUPPORTED.items():
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
