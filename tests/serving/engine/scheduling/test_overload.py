"""Tests that what waits is bounded by the time it will take; refusals say how long that is."""

import time
from typing import Any

import pytest

from serving.engine.config import EngineConfig
from serving.engine.scheduling.scheduler import Scheduler
from serving.errors import DeadlineExceeded, Overloaded
from serving.requests.request import FailedEvent, FinishedEvent, GenerationRequest
from tests.serving.engine.test_engine import toy_engine
from tests.serving.engine.toy import toy_bundle

SLOTS = 4


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Counter:
    """Serves sentences at a scheduler, ten a second, without any model."""

    def __init__(self, max_wait_seconds: float) -> None:
        self.clock = Clock()
        config = EngineConfig(slots=SLOTS, threads=1, max_wait_seconds=max_wait_seconds)
        self.scheduler = Scheduler(toy_bundle().manifest, config, SLOTS, self.clock)
        self.queue = self.scheduler.queue_for_engine()

    def ask(self, name: str, number: int = 1, **fields: Any) -> None:
        requests = [
            GenerationRequest(f"{name}-{i}", (3, 4, 5), job_id=name, ignore_eos=True, **fields)
            for i in range(number)
        ]
        self.scheduler.add(self.scheduler.accept(requests, self.clock.now))

    def serve(self, seconds: float) -> list[str]:
        """Serve those who wait, one after the other; return whose they were."""
        served = []
        for _ in range(round(10 * seconds)):
            first = self.queue.first
            if first is None:
                break
            self.queue.take(first)
            self.clock.now += 0.1
            self.queue.end(first, FinishedEvent(first.request_id, (), 0, 0, 0))
            served.append(first.request.job)
        return served


@pytest.fixture
def busy() -> Counter:
    """It serves ten sentences a second, nobody may wait for longer than two, and twenty wait."""
    counter = Counter(max_wait_seconds=2.0)
    for number in range(40):
        counter.ask(f"warm-{number}")
    counter.serve(2.0)
    assert len(counter.scheduler) == 20
    return counter


def until_refused(counter: Counter, **fields: Any) -> Overloaded:
    for number in range(1000):
        try:
            counter.ask(f"more-{number}", **fields)
        except Overloaded as error:
            return error
    raise AssertionError("nobody was refused")


def test_who_would_wait_for_too_long_is_refused_and_told_for_how_long(busy: Counter) -> None:
    error = until_refused(busy)
    assert len(busy.scheduler) == pytest.approx(21, abs=3)
    assert error.retry_after_seconds == pytest.approx(2.1, abs=0.4)
    assert error.is_for_all


def test_after_the_time_that_was_told_there_is_room(busy: Counter) -> None:
    error = until_refused(busy)
    busy.serve(error.retry_after_seconds)
    busy.ask("again")


def test_nothing_is_refused_before_the_rate_is_known() -> None:
    counter = Counter(max_wait_seconds=0.1)
    for number in range(1000):
        counter.ask(f"{number}")


def test_a_large_job_does_not_fill_the_queue_for_small_ones() -> None:
    counter = Counter(max_wait_seconds=2.0)
    counter.ask("large", 500)
    counter.serve(3.0)
    counter.ask("small")
    assert "small" in counter.serve(0.3)


def test_a_large_job_may_wait_for_as_long_as_it_takes(busy: Counter) -> None:
    busy.serve(2.0)
    busy.ask("large", 300)
    busy.ask("another", 300)
    with pytest.raises(Overloaded) as refused:
        busy.ask("third", 300)
    assert refused.value.retry_after_seconds > 50


def test_the_urgent_are_let_in_while_others_are_refused(busy: Counter) -> None:
    until_refused(busy)
    busy.ask("urgent", priority=-1)
    assert busy.serve(0.1) == ["urgent"]


def test_a_share_that_asks_for_too_much_shuts_out_itself_alone(busy: Counter) -> None:
    until_refused(busy)
    busy.ask("other", share="other")


def test_a_job_is_refused_before_its_text_is_looked_at(busy: Counter) -> None:
    busy.scheduler.check_room(10, "", 0)
    until_refused(busy)
    with pytest.raises(Overloaded):
        busy.scheduler.check_room(10, "", 0)


def test_requests_have_the_servers_deadline_unless_they_say_one() -> None:
    engine = toy_engine(slots=1, timeout_seconds=0.0001)
    engine.submit(GenerationRequest("none", (3,), ignore_eos=True))
    engine.submit(GenerationRequest("own", (3,), ignore_eos=True, timeout_seconds=1000))
    events = []
    while engine.has_work:
        events += engine.step()
    failed = [event for event in events if isinstance(event, FailedEvent)]
    assert [event.request_id for event in failed] == ["none"]
    assert isinstance(failed[0].error, DeadlineExceeded)


def test_what_goes_on_with_an_accepted_job_is_let_in(busy: Counter) -> None:
    until_refused(busy)
    busy.ask("second try", job_accepted_at=busy.clock.now)
    with pytest.raises(Overloaded):
        busy.ask("another job")


def test_the_timeout_of_a_job_counts_from_its_acceptance() -> None:
    engine = toy_engine(slots=1, timeout_seconds=20.0)
    now = time.perf_counter()
    for name, accepted_at in (("late", now - 30), ("early", now - 10), ("first", None)):
        request = GenerationRequest(name, (3,), ignore_eos=True, job_accepted_at=accepted_at)
        engine.submit(request)
    events = []
    while engine.has_work:
        events += engine.step()
    [failed] = [event for event in events if isinstance(event, FailedEvent)]
    assert failed.request_id == "late"
    assert str(failed.error) == "timeout_seconds: 20 s were not enough"
