"""Options make a plan, or are refused together with what would make them fit."""

from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import LoadTestError
from loadtest.plan import ArrivalPlan, Plan, Target
from loadtest.planning import plan_of

RECORDING = Path("run.jsonl")
DEFAULTS: dict[str, Any] = {
    "arrivals": None,
    "users": None,
    "rate": None,
    "to_rate": None,
    "burstiness": None,
    "trace": None,
    "protocols": ("translate",),
    "models": (),
    "mix": None,
    "input": None,
    "lengths": "sentences",
    "words": None,
    "prompt_words": None,
    "shared_prefix_words": 0,
    "prefixes": 4,
    "repeat": False,
    "skip_texts": 0,
    "seed": 0,
    "source": "en",
    "target": "fr",
    "max_tokens": 64,
    "stream": True,
    "disconnect": 0.0,
    "bad": 0.0,
    "duration": None,
    "requests": None,
    "warm_up": 3.0,
    "timeout": 60.0,
    "processes": None,
    "record_texts": False,
}


def plan(**options: Any) -> Plan:
    return plan_of("http://127.0.0.1:1/", RECORDING, DEFAULTS | options)


def trace(folder: Path) -> Path:
    path = folder / "trace.jsonl"
    path.write_text('{"time": 0}\n{"time": 20}\n')
    return path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ArrivalPlan(kind="closed", users=32)),
        ({"users": 5}, ArrivalPlan(kind="closed", users=5)),
        ({"rate": 2.0}, ArrivalPlan(kind="poisson", rate=2.0)),
        (
            {"arrivals": "ramp", "rate": 2.0, "to_rate": 3.0},
            ArrivalPlan(kind="ramp", rate=2.0, to_rate=3.0),
        ),
    ],
)
def test_arrivals_follow_from_what_is_given(options: dict[str, Any], expected: ArrivalPlan) -> None:
    assert plan(**options).arrivals == expected


def test_a_trace_is_replayed_to_its_end(tmp_path: Path) -> None:
    made = plan(trace=trace(tmp_path))
    assert made.arrivals.kind == "replay"
    assert made.end_seconds == pytest.approx(20.0, abs=0.01)
    assert made.end_seconds > 20
    assert plan(trace=trace(tmp_path), duration=5.0).end_seconds == 8.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"arrivals": "poisson"}, "poisson arrivals need --rate"),
        ({"arrivals": "gamma", "rate": 1.0}, "gamma arrivals need --burstiness"),
        ({"arrivals": "step", "rate": 1.0}, "step arrivals need --to-rate"),
        ({"arrivals": "replay"}, "replay arrivals need --trace"),
        ({"rate": 1.0, "users": 3}, "--users does nothing for poisson arrivals"),
        ({"arrivals": "closed", "rate": 1.0}, "--rate does nothing for closed arrivals"),
        ({"rate": 1.0, "to_rate": 3.0}, "--to-rate does nothing for poisson arrivals"),
        ({"protocols": ("chat",)}, "chat needs --model"),
        ({"protocols": ("chat",), "models": ("translate:m",)}, "chat needs --model"),
        ({"protocols": ("deepl",), "mix": "beam4"}, "deepl lets nobody choose"),
        ({"mix": "beam"}, "'beam' is no kind"),
        ({"words": (500, 600)}, "holds no text of 500 to 600 words"),
        ({"input": Path("none.txt")}, "cannot be read as text"),
        ({"trace": Path("none.jsonl")}, "No such file"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        plan(**options)
    assert reason in str(caught.value)


def test_a_trace_is_not_overwritten_nor_too_short(tmp_path: Path) -> None:
    path = trace(tmp_path)
    with pytest.raises(LoadTestError, match="is the trace itself"):
        plan_of("http://127.0.0.1:1/", path, DEFAULTS | {"trace": path})
    with pytest.raises(LoadTestError, match=r"lasts 20\.0 s, no longer than --warm-up"):
        plan(trace=path, warm_up=20.0)


def test_models_are_named_for_all_protocols_or_for_one() -> None:
    protocols = ("translate", "completions", "chat")
    made = plan(protocols=protocols, models=("translate:a", "b", "chat:c", "org/x:1"))
    pairs = [(target.protocol, target.model) for target in made.work.targets]
    assert pairs == [
        *[("translate", name) for name in ("a", "b", "org/x:1")],
        *[("completions", name) for name in ("b", "org/x:1")],
        *[("chat", name) for name in ("b", "c", "org/x:1")],
    ]


def test_each_protocol_has_its_own_default_kind() -> None:
    made = plan(protocols=("translate", "completions"), models=("m",))
    assert made.work.targets == (
        Target("translate", "m", {"default": 1.0}),
        Target("completions", "m", {"greedy": 1.0}),
    )
    mixed = plan(mix="greedy=0.6,beam4=0.4")
    assert mixed.work.targets[0].mix == {"greedy": 0.6, "beam4": 0.4}


def test_a_large_load_takes_more_processes_up_to_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadtest.planning._num_processors", lambda: 4)
    assert plan(rate=100.0).processes == 1
    assert plan(rate=2000.0).processes == 2
    assert plan(users=1600).processes == 4
    assert plan(arrivals="ramp", rate=1.0, to_rate=1e5).processes == 4
    assert plan(rate=2000.0, processes=7).processes == 7


def test_the_ceiling_is_that_of_all_processes_that_have_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadtest.planning._num_processors", lambda: 4)
    for processes, ceiling in ((3, 15_000), (9, 20_000)):
        options = DEFAULTS | {"processes": processes}
        made = plan_of("http://127.0.0.1:1/", RECORDING, options, ceiling=5000.0)
        assert made.ceiling_requests_per_second == ceiling
    assert plan().ceiling_requests_per_second is None
