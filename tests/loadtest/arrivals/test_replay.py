"""Traces come back with their own timing; a broken one is refused with the line's number."""

from pathlib import Path

import pytest

from loadtest.errors import TraceError
from loadtest.generator.arrivals import Arrival, due_times, read_trace, trace_texts
from loadtest.plan import ArrivalPlan, Plan, WorkPlan


def trace_of(folder: Path, *lines: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_lines_are_put_in_order_and_begin_at_0(tmp_path: Path) -> None:
    path = trace_of(tmp_path, '{"time": 7.5, "text": "late"}', '{"time": 7, "text": "early"}')
    assert read_trace(path) == [Arrival(0.0, "early"), Arrival(0.5, "late")]
    assert trace_texts(ArrivalPlan(kind="replay", trace=path)) == ["early", "late"]


def test_a_trace_may_have_no_texts(tmp_path: Path) -> None:
    path = trace_of(tmp_path, '{"time": 1.0}', '{"time": 1.5}')
    assert trace_texts(ArrivalPlan(kind="replay", trace=path)) is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['{"time": 0}', "{"], "line 2: not JSON: "),
        (['{"time": 0}', "7"], "line 2: the line: Input should be a dictionary"),
        (['{"time": 0}', ""], "line 2: not JSON: "),
        (['{"time": -1}'], "line 1: time: Input should be greater than or equal to 0"),
        (['{"time": "x"}'], "line 1: time: Input should be a valid number"),
        (['{"text": "x"}'], "line 1: time: Field required"),
        (['{"time": 0, "txet": "x"}'], "line 1: txet: Unexpected keyword argument"),
        (['{"time": 0, "text": 5}'], "line 1: text: Input should be a valid string"),
        (['{"time": 0, "text": "x"}', '{"time": 1}'], "has texts for some arrivals only"),
        ([], "holds no arrivals"),
        (['{"record": "run", "version": 1}'], "line 1: is of version 1; only 2 is read"),
    ],
)
def test_a_broken_trace_is_refused(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(trace_of(tmp_path, *lines))
    assert reason in str(caught.value)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.jsonl")


def a_plan(requests: int | None) -> Plan:
    return Plan(
        url="http://127.0.0.1:1/",
        arrivals=ArrivalPlan(kind="constant", rate=10.0),
        work=WorkPlan(targets=()),
        warm_up_seconds=1.0,
        duration_seconds=2.0,
        requests=requests,
    )


def test_a_schedule_ends_with_its_window_or_with_enough_requests() -> None:
    assert list(due_times(a_plan(None))) == pytest.approx([n / 10 for n in range(1, 30)])
    assert list(due_times(a_plan(5))) == pytest.approx([n / 10 for n in range(1, 15)])
