"""Tests what is known of other worker groups while Serve's controller is busy, or gone."""

import asyncio
import threading
import time

from pytest import MonkeyPatch
from ray.exceptions import RayError

from serving.deployments import forwarding
from serving.deployments.forwarding import Applications


class Controller:
    """Answers, or is busy until it is told to go on, or fails."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_gone = False

    def __call__(self) -> list[str]:
        self.num_asked += 1
        self.may_go_on.wait(10)
        if self.is_gone:
            raise RayError("the controller has died")
        return [f"answer-{self.num_asked}"]


async def test_an_answer_is_remembered() -> None:
    controller = Controller()
    applications = Applications(controller)
    answers = [await applications.running() for _ in range(3)]
    assert answers == [["answer-1"]] * 3


async def test_nobody_waits_long_for_a_busy_controller(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_KEPT_SECONDS", 0.0)
    controller = Controller()
    applications = Applications(controller)
    assert await applications.running() == ["answer-1"]

    controller.may_go_on.clear()
    start = time.monotonic()
    answers = await asyncio.gather(*(applications.running() for _ in range(20)))
    assert answers == [["answer-1"]] * 20
    assert 0.4 < time.monotonic() - start < 3
    assert controller.num_asked == 2  # once for all of them

    controller.may_go_on.set()
    assert await applications.running() == ["answer-2"]


async def test_the_first_answer_is_waited_for() -> None:
    """Without it models of other groups would be unknown to clients that come early."""
    controller = Controller()
    controller.may_go_on.clear()
    asyncio.get_running_loop().call_later(0.8, controller.may_go_on.set)
    assert await Applications(controller).running() == ["answer-1"]


async def test_one_that_is_gone_takes_nothing_away(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_KEPT_SECONDS", 0.0)
    controller = Controller()
    applications = Applications(controller)
    await applications.running()
    controller.is_gone = True
    assert await applications.running() == ["answer-1"]
    controller.is_gone = False
    assert await applications.running() == ["answer-3"]
