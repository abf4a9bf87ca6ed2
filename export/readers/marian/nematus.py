"""What differs in models of Nematus (Sennrich et al. 2017) on Theano, which Marian reads too.

Nematus keeps its options in `model.npz.json` beside the model, and names its weights in its own
way, as Marian's types "amun" and "nematus" do (marian-dev's src/models/amun.h, nematus.h).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from export.readers.common.options import Options, read_options

NAMES = {  # of options: Nematus' -> Marian's
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
# Since this version of a model dropout scales in training, and leaves nothing to do afterwards.
FIRST_SCALED_VERSION = 0.1
MARKER = "decoder_c_tt"  # Marian adds it for Nematus, which wants it
IGNORED = (MARKER, "uidx", "history_errs", "zipped_params")
PARTS = {"prev": "0", "lstm": "1", "ctx": "2"}  # of what the readout sums up
NORM = r"((?:_ln[sb])?)"

T = TypeVar("T")


def _add(number: str, difference: int) -> str:
    return str(int(number) + difference)


RULES = [
    (
        rf"encoder_(r_)?(Ux?|bx?)_drt_(\d+){NORM}",
        lambda m: f"encoder_bi_{m[1] or ''}cell{_add(m[3], 1)}_{m[2]}{m[4]}",
    ),
    (
        rf"encoder_(r_)?(Ux?|Wx?|bx?|gamma[12]){NORM}",
        lambda m: f"encoder_bi_{m[1] or ''}{m[2]}{m[3]}",
    ),
    (
        rf"decoder_(Ux?|bx?)_nl_drt_(\d+){NORM}",
        lambda m: f"decoder_cell{_add(m[2], 2)}_{m[1]}{m[3]}",
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


def settings_path(model: Path) -> Path:
    """Return the path of the settings beside a model."""
    return model.with_name(f"{model.name}.json")


def read_nematus_options(model: Path, problems: list[str]) -> Options:
    """Read the options under Marian's names; what this project does not compute is a problem."""
    settings = read_options(settings_path(model), problems, is_required=True)
    for name, supported in SUPPORTED.items():
        settings.only(name, *supported)
    if (
        settings.flag("use_dropout", False)
        and settings.number("model_version", 0.0) < FIRST_SCALED_VERSION
    ):
        settings.refuse(
            "use_dropout", f"is not supported where model_version is below {FIRST_SCALED_VERSION}"
        )
    values = {theirs: settings.values[name] for name, theirs in NAMES.items() if name in settings}
    is_tied = settings.flag("tie_decoder_embeddings", False)
    is_shared = settings.flag("tie_encoder_decoder_embeddings", False)
    ties = {"tied-embeddings-all": is_tied and is_shared}
    ties |= {"tied-embeddings": is_tied, "tied-embeddings-src": is_shared}
    cells = {"enc-cell": "gru-nematus", "dec-cell": "gru-nematus"}
    return Options(settings.file, {"type": "nematus", **cells, **values, **ties}, problems)


def rename_nematus_weights(items: Mapping[str, T], *, has_one_embedding: bool) -> dict[str, T]:
    """Rename the weights of Nematus to those of Marian's s2s; others keep their names."""
    if MARKER not in items:
        return dict(items)
    named = {_rename_weight(name): item for name, item in items.items() if name not in IGNORED}
    if "Wemb" in named and not has_one_embedding:
        named["encoder_Wemb"] = named.pop("Wemb")
    return named


def _rename_weight(name: str) -> str:
    for pattern, rename in RULES:
        if match := re.fullmatch(pattern, name):
            return rename(match)
    return name
