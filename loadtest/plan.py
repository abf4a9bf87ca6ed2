"""The plan of a run: arrivals of requests, their contents, the duration, and the server."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.records import CLOSED_LOOP, LoadTestError

ARRIVALS = (CLOSED_LOOP, "poisson", "constant")
PROTOCOL_NAMES = ("translate", "completions", "chat", "deepl")
NEEDS_MODEL = ("completions", "chat")
DEFAULT_USERS = 32
DEFAULT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """When requests are sent: by a number of users, or at a rate in requests per second."""

    kind: str = CLOSED_LOOP
    users: int | None = None
    rate: float | None = None

    @property
    def is_closed_loop(self) -> bool:
        return self.kind == CLOSED_LOOP


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """The contents of requests.

    max_tokens: None uses the default of the protocol.
    skipped_texts: texts that earlier runs used.
    """

    protocol: str = "translate"
    model: str | None = None
    seed: int = 0
    input: Path | None = None
    lengths: str = "sentences"
    source: str = "en"
    target: str = "fr"
    max_tokens: int | None = None
    is_streamed: bool = True
    repeats: bool = False
    skipped_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The plan of a run. `url` ends in a slash.

    duration_seconds: of the window that is measured, which follows the warm-up.
    requests: close the window after about so many requests.
    headers: of every request. They may hold keys, so recordings do not have them.
    """

    url: str
    arrivals: ArrivalPlan
    work: WorkPlan
    warm_up_seconds: float = 3.0
    duration_seconds: float = DEFAULT_SECONDS
    requests: int | None = None
    timeout_seconds: float = 60.0
    objective: Mapping[str, float] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def end_seconds(self) -> float:
        return self.warm_up_seconds + self.duration_seconds


def as_record(part: ArrivalPlan | WorkPlan) -> dict[str, Any]:
    """Return the fields that are set, as JSON can hold them."""
    values = {n: v.name if isinstance(v, Path) else v for n, v in asdict(part).items()}
    return {name: value for name, value in values.items() if value is not None}


def plan_of(
    url: str, options: Mapping[str, Any], objective: Mapping[str, float] | None = None
) -> LoadPlan:
    """Return the plan that options describe. Raise LoadTestError if options do not fit together."""
    if options["protocol"] in NEEDS_MODEL and not options["model"]:
        raise LoadTestError(f"{options['protocol']} needs --model")
    return LoadPlan(
        url=url,
        arrivals=_arrivals(options["arrivals"], options["users"], options["rate"]),
        work=WorkPlan(
            is_streamed=options["stream"],
            repeats=options["repeat"],
            skipped_texts=options["skip_texts"],
            **{name: options[name] for name in _SAME_NAMES},
        ),
        warm_up_seconds=options["warm_up"],
        duration_seconds=options["duration"],
        requests=options["requests"],
        timeout_seconds=options["timeout"],
        objective=objective,
        headers=_headers(options),
    )


def _headers(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of every request; a key is sent as clients of the protocol send it."""
    scheme = "DeepL-Auth-Key" if options["protocol"] == "deepl" else "Bearer"
    key = options["api_key"]
    return dict(options["headers"]) | ({"Authorization": f"{scheme} {key}"} if key else {})


_SAME_NAMES = (
    *("protocol", "model", "seed", "input", "lengths"),
    *("source", "target", "max_tokens"),
)


def _arrivals(kind: str | None, users: int | None, rate: float | None) -> ArrivalPlan:
    kind = kind or (CLOSED_LOOP if rate is None else "poisson")
    if kind == CLOSED_LOOP:
        if rate is not None:
            raise LoadTestError(f"--rate does nothing for {kind} arrivals")
        return ArrivalPlan(kind=kind, users=users or DEFAULT_USERS)
    if users is not None:
        raise LoadTestError(f"--users does nothing for {kind} arrivals")
    if rate is None:
        raise LoadTestError(f"{kind} arrivals need --rate")
    return ArrivalPlan(kind=kind, rate=rate)
