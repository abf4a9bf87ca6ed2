"""Users wait for their answers, a pace does not; both stop when told."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from loadtest.generator.items import Item, Work
from loadtest.generator.loads import PAUSE_AFTER_ERROR_SECONDS, Load, LoadParts, Pace, Users
from loadtest.generator.sending import Sender
from loadtest.records import OK, Request
from tests.loadtest.recordings import request_of


class ScriptedSender:
    """Answers after a fixed time; remembers who was in flight."""

    def __init__(self, seconds: float = 0.02, outcome: str = OK) -> None:
        self.seconds = seconds
        self.outcome = outcome
        self.in_flight = self.most_in_flight = 0

    async def send(self, item: Item, intended: float | None, user: int | None) -> Request:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        outcome = self.outcome
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            outcome = "cancelled"
        self.in_flight -= 1
        return request_of(intended or 0.0, 0.0, id=item.id, user=user, outcome=outcome)


class ScriptedWork:
    def item(self, place: int) -> Item:
        return Item(place, "default", "translate", None, "text")


def parts(sender: ScriptedSender) -> tuple[LoadParts, list[Request]]:
    done: list[Request] = []
    begun = time.monotonic()
    clock: Callable[[], float] = lambda: time.monotonic() - begun  # noqa: E731
    return LoadParts(cast(Work, ScriptedWork()), cast(Sender, sender), clock, done.append), done


async def run_for(load: Load, seconds: float) -> None:
    asyncio.get_running_loop().call_later(seconds, load.stop)
    await load.run()


async def test_every_user_has_one_request_in_flight() -> None:
    sender = ScriptedSender()
    made, done = parts(sender)
    await run_for(Users([0, 2, 4], itertools.count(5, 10), made), 0.2)
    assert sender.most_in_flight == 3
    assert sender.in_flight == 0
    assert {request.user for request in done} == {0, 2, 4}
    assert sorted(request.id for request in done) == list(range(5, 5 + 10 * len(done), 10))


async def test_a_refused_user_pauses() -> None:
    made, done = parts(ScriptedSender(seconds=0, outcome="refused"))
    await run_for(Users([0], itertools.count(), made), 1.5 * PAUSE_AFTER_ERROR_SECONDS)
    assert len(done) == 2


def pace(arrivals: Iterable[float], sender: ScriptedSender) -> tuple[Pace, list[Request], Any]:
    made, done = parts(sender)
    return Pace(enumerate(arrivals), made), done, made.clock


async def test_a_pace_waits_for_nobody() -> None:
    sender = ScriptedSender(seconds=0.3)
    load, done, clock = pace([0.0, 0.05, 0.051, 0.1], sender)
    await load.run()
    assert sender.most_in_flight == 4
    assert [request.intended for request in done] == [0.0, 0.05, 0.051, 0.1]
    assert clock() >= 0.4
    assert load.last_due == 0.1


async def test_a_pace_never_sends_early() -> None:
    early: list[float] = []
    load, _, clock = pace([n * 0.007 for n in range(40)], ScriptedSender())

    async def send(item: Item, intended: float, user: int | None) -> Request:
        early.append(intended - clock())
        return request_of(0.0, 0.0, id=item.id)

    load._parts.sender.send = send  # type: ignore[method-assign, assignment]
    await load.run()
    assert len(early) == 40
    assert max(early) <= 0


async def test_what_is_in_flight_is_waited_for_or_hung_up_on() -> None:
    for end, outcome in ((Load.stop, OK), (Load.abort, "cancelled")):
        load, done, _ = pace([0.0, 60.0], ScriptedSender(seconds=0.2))
        asyncio.get_running_loop().call_later(0.1, end, load)
        await load.run()
        assert [request.outcome for request in done] == [outcome]
        assert load.last_due is None


async def test_a_record_that_cannot_be_written_ends_the_load() -> None:
    def full(record: Request) -> None:
        raise OSError("the disk is full")

    made, _ = parts(ScriptedSender())
    made = replace(made, done=full)
    for load in (Users([0, 1], itertools.count(), made), Pace([(0, 0.0), (1, 60.0)], made)):
        with pytest.raises(OSError, match="the disk is full"):
            await load.run()
