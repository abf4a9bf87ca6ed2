"""Knows what Nematus calls its weights, and Marian's types "amun" and "nematus" after it:
src/models/amun.h and src/models/nematus.h of marian-dev.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

MARK = "decoder_c_tt"  # Marian adds it for Nematus, which wants it
NEEDLESS = (MARK, "uidx", "history_errs", "zipped_params")
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
    """Give Nematus' weights the names of Marian's s2s; leave others as they are."""
    if MARK not in items:
        return dict(items)
    named = {_renamed(name): item for name, item in items.items() if name not in NEEDLESS}
    if "Wemb" in named and not has_one_embedding:
        named["encoder_Wemb"] = named.pop("Wemb")
    return named


def _renamed(name: str) -> str:
    for pattern, rename in RULES:
        if match := re.fullmatch(pattern, name):
            return rename(match)
    return name
