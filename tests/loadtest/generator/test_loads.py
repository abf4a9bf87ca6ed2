"""Users wait for their answers, an open loop does not; both stop when they should."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from loadtest.generator.loads import PAUSE_AFTER_ERROR_SECONDS, Load, LoadPace, Users, due_times
from loadtest.plan import ArrivalPlan, LoadPlan, WorkPlan
from loadtest.records import OK, Request
from tests.loadtest.recordings import request_of


@dataclass
class Server:
    """Answers after a fixed time; remembers what was sent when."""

    seconds: float = 0.02
    outcome: str = OK
    in_flight: int = 0
    most_in_flight: int = 0
    done: list[Request] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def clock(self) -> float:
        return time.monotonic() - self.begun

    async def send(self, number: int, intended: float | None) -> Request:
        sent, outcome = self.clock(), self.outcome
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            outcome = "cancelled"
        self.in_flight -= 1
        record = request_of(intended or 0.0, 0.0, id=number, sent=sent, outcome=outcome)
        self.done.append(record)
        return record


async def run_for(load: Load, seconds: float) -> None:
    asyncio.get_running_loop().call_later(seconds, load.stop)
    await load.run()


async def test_every_user_has_one_request_in_flight() -> None:
    server = Server()
    await run_for(Users(3, server.send, server.clock), 0.2)
    assert (server.most_in_flight, server.in_flight) == (3, 0)
    assert sorted(request.id for request in server.done) == list(range(len(server.done)))


async def test_a_refused_user_pauses() -> None:
    server = Server(seconds=0, outcome="refused")
    await run_for(Users(1, server.send, server.clock), 1.5 * PAUSE_AFTER_ERROR_SECONDS)
    assert len(server.done) == 2


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    server = Server(seconds=0.3)
    load = LoadPace([0.0, 0.05, 0.051, 0.1], server.send, server.clock)
    await load.run()
    assert server.most_in_flight == 4
    assert [request.intended for request in server.done] == [0.0, 0.05, 0.051, 0.1]
    assert server.clock() >= 0.4
    assert load.has_sent_all.is_set()
    assert load.last_due == 0.1


async def test_no_request_is_sent_early() -> None:
    server = Server()
    await LoadPace([n * 0.007 for n in range(40)], server.send, server.clock).run()
    assert len(server.done) == 40
    assert all(request.sent >= request.intended for request in server.done)


@pytest.mark.parametrize(("end", "outcome"), [(Load.stop, OK), (Load.abort, "cancelled")])
async def test_requests_in_flight_are_answered_or_disconnected(
    end: Callable[[Load], None], outcome: str
) -> None:
    server = Server(seconds=0.2)
    load = LoadPace([0.0, 60.0], server.send, server.clock)
    asyncio.get_running_loop().call_later(0.1, end, load)
    await load.run()
    assert [request.outcome for request in server.done] == [outcome]
    assert not load.has_sent_all.is_set()


async def test_a_record_that_cannot_be_written_ends_the_load() -> None:
    async def send(number: int, intended: float | None) -> Request:
        raise OSError("the disk is full")

    clock = Server().clock
    for load in (Users(2, send, clock), LoadPace([0.0, 60.0], send, clock)):
        with pytest.raises(OSError, match="the disk is full"):
            await load.run()


def plan(requests: int | None = None, duration: float = 200.0, **changes: Any) -> LoadPlan:
    arrivals = {"kind": "poisson", "rate": 100.0, **changes}
    seed = int(arrivals.pop("seed", 7))
    return LoadPlan(
        url="http://127.0.0.1:1/",
        arrivals=ArrivalPlan(**arrivals),
        work=WorkPlan(seed=seed),
        warm_up_seconds=1.0,
        duration_seconds=duration,
        requests=requests,
    )


@pytest.mark.parametrize(("kind", "variation"), [("constant", 0.0), ("poisson", 1.0)])
def test_a_rate_is_kept_and_gaps_vary_as_they_should(kind: str, variation: float) -> None:
    found = np.array(list(due_times(plan(kind=kind))))
    assert len(found) == pytest.approx(100 * 201, rel=0.03)
    assert np.all((np.diff(found) >= 0) & (found[1:] < 201))
    gaps = np.diff(found)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03, abs=1e-6)


def test_the_seed_alone_decides() -> None:
    one, same, other = (list(due_times(plan(duration=9, seed=seed))) for seed in (1, 1, 2))
    assert one == same != other


def test_a_schedule_ends_with_its_window_or_with_enough_requests() -> None:
    for requests, last in ((None, 30), (5, 15)):
        made = plan(requests, kind="constant", rate=10.0, duration=2.0)
        assert list(due_times(made)) == pytest.approx([n / 10 for n in range(1, last)])
