"""Makes a plan out of the options of the command, and refuses those that do not fit together."""

import os
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from loadtest.errors import PlanError
from loadtest.generator.arrivals import read_trace
from loadtest.generator.items import DEFAULT, Work, parse_mix
from loadtest.generator.protocols import PROTOCOLS
from loadtest.plan import ArrivalPlan, Plan, Target, WorkPlan
from loadtest.records import CLOSED_LOOP

_USERS = 32
_DURATION_SECONDS = 30.0
_USERS_A_PROCESS = 500
_RATE_A_PROCESS = 1500.0
_NEEDS = {
    CLOSED_LOOP: (),
    "poisson": ("rate",),
    "constant": ("rate",),
    "gamma": ("rate", "burstiness"),
    "ramp": ("rate", "to_rate"),
    "step": ("rate", "to_rate"),
    "replay": ("trace",),
}
_ARRIVAL_OPTIONS = ("users", "rate", "to_rate", "burstiness", "trace")


def plan_of(
    url: str, recording: Path, options: Mapping[str, Any], ceiling: float | None = None
) -> Plan:
    """Return the plan. Raises PlanError, or TraceError, for what cannot be run.

    ceiling: requests a second that one process can send, if it has been measured.
    """
    arrivals = _arrivals(options)
    work = _work(options)
    Work(work)  # says at once where there are no texts
    if arrivals.trace is not None and arrivals.trace.resolve() == recording.resolve():
        raise PlanError(f"{recording} is the trace itself; record to another file")
    processes = options["processes"] or _num_processes(arrivals)
    return Plan(
        url=url,
        arrivals=arrivals,
        work=work,
        warm_up_seconds=options["warm_up"],
        duration_seconds=_duration(arrivals, options),
        requests=options["requests"],
        timeout_seconds=options["timeout"],
        processes=processes,
        ceiling_requests_per_second=ceiling and ceiling * min(processes, _num_processors()),
        records_texts=options["record_texts"],
    )


def _arrivals(options: Mapping[str, Any]) -> ArrivalPlan:
    given = {name: options[name] for name in _ARRIVAL_OPTIONS if options[name] is not None}
    kind = options["arrivals"] or _likely_kind(given)
    used = ("users",) if kind == CLOSED_LOOP else _NEEDS[kind]
    for name in _NEEDS[kind]:
        if name not in given:
            raise PlanError(f"{kind} arrivals need {_flag(name)}")
    for name in given:
        if name not in used:
            raise PlanError(f"{_flag(name)} does nothing for {kind} arrivals")
    if kind == CLOSED_LOOP:
        given.setdefault("users", _USERS)
    return ArrivalPlan(kind=kind, **given)


def _likely_kind(given: Mapping[str, Any]) -> str:
    if "trace" in given:
        return "replay"
    return "poisson" if "rate" in given else CLOSED_LOOP


def _work(options: Mapping[str, Any]) -> WorkPlan:
    return WorkPlan(
        targets=_targets(options["protocols"], options["models"], options["mix"]),
        seed=options["seed"],
        input=options["input"],
        lengths=options["lengths"],
        words=options["words"],
        prompt_words=options["prompt_words"],
        shared_prefix_words=options["shared_prefix_words"],
        num_prefixes=options["prefixes"],
        source=options["source"],
        target=options["target"],
        max_tokens=options["max_tokens"],
        is_streamed=options["stream"],
        disconnect=options["disconnect"],
        bad=options["bad"],
        repeats=options["repeat"],
        skipped_texts=options["skip_texts"],
    )


def _targets(
    protocols: Sequence[str], models: Sequence[str], mix: str | None
) -> tuple[Target, ...]:
    """Pair each protocol with the models named for it, or for all."""
    targets: list[Target] = []
    named = [_split(model) for model in models]
    for protocol in dict.fromkeys(protocols):
        own = [name for only, name in named if only in (None, protocol)]
        if PROTOCOLS[protocol].needs_model and not own:
            raise PlanError(f"{protocol} needs --model")
        kinds = _mix(protocol, mix)
        targets += [Target(protocol, model, kinds) for model in own or (None,)]
    return tuple(targets)


def _split(model: str) -> tuple[str | None, str]:
    protocol, colon, name = model.partition(":")
    return (protocol, name) if colon and protocol in PROTOCOLS else (None, model)


def _mix(protocol: str, text: str | None) -> dict[str, float]:
    if text is None:
        return {PROTOCOLS[protocol].default_kind: 1.0}
    mix = parse_mix(text)
    if not PROTOCOLS[protocol].knows_kinds and set(mix) != {DEFAULT}:
        raise PlanError(f"{protocol} lets nobody choose how to decode; leave --mix out")
    return mix


def _duration(arrivals: ArrivalPlan, options: Mapping[str, Any]) -> float:
    if arrivals.trace is None:
        return options["duration"] or _DURATION_SECONDS
    last = read_trace(arrivals.trace)[-1].time
    if last <= options["warm_up"]:
        raise PlanError(f"{arrivals.trace} lasts {last:.1f} s, no longer than --warm-up")
    length = last - options["warm_up"] + 1e-3  # with the last request
    return min(length, options["duration"] or length)


def _num_processes(arrivals: ArrivalPlan) -> int:
    """Return how many processes a load takes, but no more than there are processors."""
    share = (arrivals.users or 0) / _USERS_A_PROCESS
    rate = max(arrivals.rate or 0.0, arrivals.to_rate or 0.0) / _RATE_A_PROCESS
    return max(1, min(_num_processors(), ceil(max(share, rate))))


def _num_processors() -> int:
    return len(os.sched_getaffinity(0))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
