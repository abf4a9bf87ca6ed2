"""Says what a run is to do: when requests arrive, what they ask, how long, and to whom.

A plan is plain values: it goes to every process of the generator, and into the recording.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.records import CLOSED_LOOP

OPEN_LOOPS = ("poisson", "constant", "gamma", "ramp", "step", "replay")
ARRIVALS = (CLOSED_LOOP, *OPEN_LOOPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """Says when requests are sent. `rate` and `to_rate` are requests a second; `burstiness` is the
    shape of the gamma distribution of the gaps: 1 is Poisson, less is burstier.
    """

    kind: str = CLOSED_LOOP
    users: int | None = None
    rate: float | None = None
    to_rate: float | None = None
    burstiness: float | None = None
    trace: Path | None = None

    @property
    def is_closed_loop(self) -> bool:
        return self.kind == CLOSED_LOOP


@dataclass(frozen=True, slots=True)
class Target:
    """Says whom to ask: a protocol and a model, and the kinds of decoding with their shares."""

    protocol: str
    model: str | None
    mix: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """Says what is asked.

    targets: take turns at random. words: least and most words of a text. prompt_words: words of a
    prompt that is made of paragraphs. shared_prefix_words: words of the beginning that prompts of
    one of `num_prefixes` groups share. disconnect, bad: shares of requests that are hung up on, or
    are broken.
    skipped_texts: how many texts other runs have used already.
    """

    targets: tuple[Target, ...]
    seed: int = 0
    input: Path | None = None
    lengths: str = "sentences"
    words: tuple[int, int] | None = None
    prompt_words: tuple[int, int] | None = None
    shared_prefix_words: int = 0
    num_prefixes: int = 4
    source: str = "en"
    target: str = "fr"
    max_tokens: int = 64
    is_streamed: bool = True
    disconnect: float = 0.0
    bad: float = 0.0
    repeats: bool = False
    skipped_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Holds all of a run. `url` ends in a slash; the window is what is measured, after warming up.

    requests: the window closes after about so many. processes: None lets the load decide.
    """

    url: str
    arrivals: ArrivalPlan
    work: WorkPlan
    warm_up_seconds: float = 3.0
    duration_seconds: float = 30.0
    requests: int | None = None
    timeout_seconds: float = 60.0
    processes: int = 1
    records_texts: bool = False
    scrape_seconds: float = 2.0
    objective: Mapping[str, float] | None = None
    ceiling_requests_per_second: float | None = None

    @property
    def end_seconds(self) -> float:
        return self.warm_up_seconds + self.duration_seconds


def as_record(part: ArrivalPlan | WorkPlan) -> dict[str, Any]:
    """Return what a part says as JSON can hold it, without what it leaves open."""
    values = {name: _plain(value) for name, value in asdict(part).items()}
    return {name: value for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Path) else value
