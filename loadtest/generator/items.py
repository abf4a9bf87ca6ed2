"""What each request asks: its text, its decoding, and whether it is broken on purpose."""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from loadtest.errors import PlanError
from loadtest.generator.texts import Prompts, Texts, beginnings, read_texts
from loadtest.plan import WorkPlan

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


FAULTS = ("cut JSON", "no text", "text of a wrong type")
_TEXT_FIELDS = ("q", "prompt", "messages", "text")  # of all protocols


def broken(body: dict[str, Any], fault: str) -> bytes:
    """Return a body with one fault in it."""
    whole = json.dumps(body).encode()
    if fault == "cut JSON":
        return whole[: len(whole) // 2]
    name = next(name for name in _TEXT_FIELDS if name in body)
    changed = {key: value for key, value in body.items() if key != name}
    if fault == "text of a wrong type":
        changed[name] = 17
    return json.dumps(changed).encode()


BAD = "bad"  # the kind of what is broken
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Item:
    """Holds what one request asks.

    beginning: what it shares with others, before its own text. hang_up: the part of an answer's
    usual time after which to hang up on it. fault: what is to be broken about it.
    """

    id: int
    kind: str
    protocol: str
    model: str | None
    text: str
    beginning: str | None = None
    hang_up: float | None = None
    fault: str | None = None

    @property
    def whole_text(self) -> str:
        return f"{self.beginning} {self.text}" if self.beginning else self.text


class Work:
    """Makes the items of a run. Raises PlanError where there are no texts for it.

    texts: those of a trace, which come in their own order and are not varied.
    """

    def __init__(self, plan: WorkPlan, texts: Sequence[str] | None = None) -> None:
        self._plan = plan
        self._mixes = [Mix(target.mix) for target in plan.targets]
        self._draws = _Draws(plan.seed)
        self._given = texts
        lengths = "paragraphs" if plan.prompt_words else plan.lengths
        self._pool = Texts(read_texts(plan.input, lengths, plan.words), plan.seed, plan.repeats)
        self._texts: Texts | Prompts = self._pool
        if plan.prompt_words:
            self._texts = Prompts(self._pool, plan.prompt_words, plan.seed)
        paragraphs = Texts(read_texts(None, "paragraphs", None), plan.seed + 1)
        self._beginnings = beginnings(paragraphs, plan.shared_prefix_words, plan.num_prefixes)

    @property
    def num_texts(self) -> int:
        """Return how many texts there are before they come again, varied."""
        return len(self._pool if self._given is None else self._given)

    def item(self, place: int) -> Item:
        plan = self._plan
        target_draw, kind_draw, bad_draw, fault_draw, beginning_draw, hang_up_draw, part = (
            self._draws.at(plan.skipped_texts + place)
        )
        number = int(target_draw * len(plan.targets))
        target, is_bad = plan.targets[number], bad_draw < plan.bad
        return Item(
            id=place,
            kind=BAD if is_bad else self._mixes[number].at(kind_draw),
            protocol=target.protocol,
            model=target.model,
            text=self._text(place),
            beginning=_at(beginning_draw, self._beginnings) if self._beginnings else None,
            hang_up=part if not is_bad and hang_up_draw < plan.disconnect else None,
            fault=_at(fault_draw, FAULTS) if is_bad else None,
        )

    def _text(self, place: int) -> str:
        if self._given is not None:
            return self._given[place % len(self._given)]
        return self._texts[self._plan.skipped_texts + place]


class _Draws:
    """Gives every place seven numbers between 0 and 1, which depend on the seed alone.

    They are drawn in blocks: to seed a generator for each place would take longer than all else.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = lru_cache(maxsize=4)(self._drawn)

    def at(self, place: int) -> list[float]:
        block, row = divmod(place, _BLOCK)
        return self._block(block)[row]

    def _drawn(self, block: int) -> list[list[float]]:
        return np.random.default_rng([self._seed, block]).random((_BLOCK, 7)).tolist()


def _at(draw: float, choices: Sequence[str]) -> str:
    return choices[int(draw * len(choices))]
