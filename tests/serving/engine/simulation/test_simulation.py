"""Thousands of steps of simulated engines; and faults that the simulation must find."""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import pytest

from serving.engine.bridge import AsyncEngine
from serving.engine.fair_share import FairShare, ProcessorTurns
from serving.engine.generation import Generation
from serving.engine.scheduling.fair_queue import JobQueues, WaitingQueue
from serving.engine.scheduling.scheduler import EngineQueue, Scheduler
from serving.engine.worker import Worker
from serving.requests.request import Event, FinalEvent, is_final
from tests.serving.engine.simulation.episode import run_episode

STEPS = 10_000
MOST_EPISODES = 5000  # in which a planted fault must show; most show in the first ten


def test_ten_thousand_steps() -> None:
    num_steps = 0
    for seed in count():
        try:
            num_steps += run_episode(seed)
        except BaseException as error:
            error.add_note(f"python -m tests.serving.engine.simulation.run --seed {seed} --steps 1")
            raise
        if num_steps >= STEPS:
            return


def test_a_seed_gives_the_same_steps_again() -> None:
    assert [run_episode(7) for _ in range(3)] == [run_episode(7)] * 3


def nobody_looks_after_others(patch: pytest.MonkeyPatch) -> None:
    """What 1dba1cd3 mended: an engine rests although the end of a large job has let it work."""

    def on_step(self: AsyncEngine, worker: Worker, events: Iterable[Event], _: float) -> None:
        self._deliver(events)

    patch.setattr(AsyncEngine, "on_step", on_step)


def deadlines_only_while_waiting(patch: pytest.MonkeyPatch) -> None:
    """What 738abc73 mended: who is being answered already has no deadline any more."""

    def expire(self: EngineQueue, now: float) -> int:
        waiting = [*self._scheduler.waiting.values()]
        expired = [each for each in waiting if each.deadline is not None and each.deadline <= now]
        for generation in expired:
            self._take(generation, is_next=False)
            self.end(generation, generation.expired_event())
        return len(expired)

    patch.setattr(EngineQueue, "expire", expire)


def asking_for_nothing_waits(patch: pytest.MonkeyPatch) -> None:
    """What 10db7e32 mended: a job without requests is refused by a full queue."""
    add = Scheduler.add

    def checked(self: Scheduler, generations: Sequence[Generation]) -> None:
        if not generations:
            self.check_room(0, "", 0)
        add(self, generations)

    patch.setattr(Scheduler, "add", checked)


def turns_never_end(patch: pytest.MonkeyPatch) -> None:
    """A model keeps the processors for as long as it has work."""
    patch.setattr(FairShare, "may_continue", lambda self, turns, seconds: True)


def processors_without_threads(patch: pytest.MonkeyPatch) -> None:
    """Engines take one processor each, whatever their threads."""

    def is_next(self: FairShare, turns: ProcessorTurns) -> bool:
        first = min(self._waiting, key=lambda waiting: waiting.next_start_tag)
        return turns is first and self._num_free > 0

    patch.setattr(FairShare, "_is_next", is_next)


def rests_without_a_second_look(patch: pytest.MonkeyPatch) -> None:
    """Work that came between the last look and the rest wakes nobody."""

    def wait_for_command(self: Worker) -> None:
        self._is_idle = True
        self._inbox.get()()
        self._is_idle = False

    patch.setattr(Worker, "_wait_for_command", wait_for_command)


def deadlines_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A request that has ended keeps its deadline."""

    def end(self: EngineQueue, generation: Generation, final_event: FinalEvent) -> None:
        del self._running[generation.request_id]
        self.num_rows -= generation.num_rows
        self._scheduler.end(generation, is_finished=True)
        self.events.append(final_event)

    patch.setattr(EngineQueue, "end", end)


def ends_are_told_twice(patch: pytest.MonkeyPatch) -> None:
    """The last event of a request stays open: it is told again when the engine stops."""
    deliver = AsyncEngine._deliver

    def deliver_again(self: AsyncEngine, events: Iterable[Event]) -> None:
        delivered, collectors = [*events], dict(self._collectors)
        deliver(self, delivered)
        self._collectors |= {
            event.request_id: collectors[event.request_id] for event in delivered if is_final(event)
        }

    patch.setattr(AsyncEngine, "_deliver", deliver_again)


def jobs_are_forgotten_late(patch: pytest.MonkeyPatch) -> None:
    """A job that has ended still counts as one."""
    patch.setattr(JobQueues, "end", lambda self, generation: self._queues.pop(generation))


def no_share_is_charged(patch: pytest.MonkeyPatch) -> None:
    """One key takes all turns."""

    remove = WaitingQueue.remove

    def uncharged(self: WaitingQueue, generation: Generation, is_next: bool) -> None:
        remove(self, generation, is_next=False)

    patch.setattr(WaitingQueue, "remove", uncharged)


FAULTS: list[Any] = [
    pytest.param(nobody_looks_after_others, marks=pytest.mark.slow),
    deadlines_only_while_waiting,
    asking_for_nothing_waits,
    turns_never_end,
    processors_without_threads,
    rests_without_a_second_look,
    deadlines_of_the_dead,
    ends_are_told_twice,
    jobs_are_forgotten_late,
    no_share_is_charged,
]


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # what fails in the simulation is no news
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(MOST_EPISODES):
            run_episode(seed)
