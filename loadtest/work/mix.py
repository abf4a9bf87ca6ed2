"""Names kinds of requests, and chooses one by their shares.

A kind says how the answer is decoded: "default" leaves it to the server, "greedy", "beam4" (of any
width) and "sampled" say what their names do.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from loadtest.errors import PlanError

DEFAULT, GREEDY, SAMPLED = "default", "greedy", "sampled"
_BEAM = re.compile(r"beam([1-9]\d?)")


def parse_mix(text: str) -> dict[str, float]:
    """Read "greedy=0.6,beam4=0.2,sampled=0.2". Raises PlanError for what it does not understand."""
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.partition("="))
        if name not in (DEFAULT, GREEDY, SAMPLED) and not _BEAM.fullmatch(name):
            raise PlanError(f"{name!r} is no kind: default, greedy, sampled, beam2, beam4, ...")
        mix[name] = mix.get(name, 0.0) + _share(name, share)
    return mix


def _share(name: str, text: str) -> float:
    try:
        share = float(text) if text else 1.0
    except ValueError:
        share = -1.0
    if not 0 < share < float("inf"):
        raise PlanError(f"the share of {name} must be a number above 0, not {text!r}")
    return share


def num_beams(kind: str) -> int | None:
    """Return the width of a kind that searches, else None."""
    match = _BEAM.fullmatch(kind)
    return int(match[1]) if match else None


class Mix:
    """Chooses kinds so often as their shares say, whatever those add up to."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._kinds = list(shares)
        self._bounds = list(accumulate(shares.values()))[:-1]
        self._total = sum(shares.values())

    def at(self, draw: float) -> str:
        """Return the kind that a number from 0 to 1 falls on."""
        return self._kinds[bisect_right(self._bounds, draw * self._total)]
