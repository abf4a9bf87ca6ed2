"""Engines that share a processor get equal time, and nobody waits for long."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from serving.engine.arrays import Array
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.fair_share import FairShare, ProcessorTurns
from serving.engine.stats import EngineStats, StepStats
from serving.requests.request import FinishedEvent, GenerationRequest
from tests.serving.engine.toy import toy_bundle, toy_graphs


def in_threads(*functions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Flooded:
    """An engine that always has work; notes when its steps began and what they took."""

    def __init__(self, turns: ProcessorTurns, step_seconds: float) -> None:
        self.turns, self.step_seconds = turns, step_seconds
        self.steps: list[tuple[float, float]] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            with self.turns:
                began = time.perf_counter()
                time.sleep(self.step_seconds)
                self.steps.append((began, time.perf_counter() - began))

    def seconds(self, until: float) -> float:
        return sum(seconds for began, seconds in self.steps if began < until)


@pytest.mark.parametrize("num_at_once", [1, 2])
def test_flooded_engines_get_equal_shares_of_time(num_at_once: int) -> None:
    share = FairShare(num_at_once)
    engines = [Flooded(share.join()[0], cost) for cost in (0.001, 0.004, 0.01)]
    until = time.perf_counter() + 0.9
    in_threads(
        *(lambda e=engine: e.run_until(lambda: time.perf_counter() > until) for engine in engines)
    )
    times = [engine.seconds(until) for engine in engines]
    assert sum(times) > 0.7 * num_at_once * 0.9
    assert max(times) - min(times) < 0.2 * max(times)


def test_never_more_engines_step_than_may() -> None:
    share, lock = FairShare(2), threading.Lock()
    running: list[int] = []
    most = 0

    def engine() -> None:
        nonlocal most
        [turns] = share.join()
        for _ in range(200):
            with turns:
                with lock:
                    running.append(1)
                    most = max(most, len(running))
                time.sleep(0)
                with lock:
                    running.pop()

    in_threads(*[engine] * 5)
    assert most == 2


def test_a_rare_request_waits_for_the_step_that_runs_and_an_idle_time_earns_nothing() -> None:
    share = FairShare(1)
    flooded, [rare] = Flooded(share.join()[0], 0.004), share.join()
    waits: list[tuple[float, float]] = []
    is_over = threading.Event()

    def ask_now_and_then() -> None:
        for _ in range(15):
            time.sleep(0.02)
            began = time.perf_counter()
            with rare:
                waits.append((began, time.perf_counter()))
        is_over.set()

    in_threads(lambda: flooded.run_until(is_over.is_set), ask_now_and_then)
    for asked_at, served_at in waits:
        begun_meanwhile = [1 for began, _ in flooded.steps if asked_at < began < served_at]
        assert len(begun_meanwhile) <= 1
    assert rare.account.time == pytest.approx(flooded.turns.account.time, abs=0.03)


def test_a_turn_lasts_while_nobody_who_waits_is_further_behind() -> None:
    share = FairShare(1)
    [ahead], [behind] = share.join(), share.join()
    ahead.account.time = 5.0
    with behind:
        assert behind.may_continue()
        waiting = threading.Thread(target=ahead.__enter__)
        waiting.start()
        while not share._waiting:
            time.sleep(0.001)
        assert behind.may_continue()
        behind.account.time = 6.0
        assert not behind.may_continue()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_lane_gets_the_part_of_the_time_that_its_weight_says() -> None:
    share = FairShare(1)
    [light], [heavy] = (share.join(weight=part.__float__) for part in (0.25, 0.75))
    sizes = [Flooded(turns, 0.003) for turns in (light, heavy)]
    until = time.perf_counter() + 0.6
    in_threads(*(lambda e=e: e.run_until(lambda: time.perf_counter() > until) for e in sizes))
    few, many = (job_size.seconds(until) for job_size in sizes)
    assert 2 < many / few < 4.5


def test_a_turn_that_fails_is_given_back() -> None:
    share = FairShare(1)
    [failing], [other] = share.join(), share.join()
    with pytest.raises(ValueError, match="a bug"), failing:
        raise ValueError("a bug")
    with other:
        pass


def test_two_engines_of_one_model_get_no_more_than_one_of_another() -> None:
    share = FairShare(1)
    first, second = ([Flooded(turns, 0.003) for turns in share.join(n)] for n in (2, 1))
    until = time.perf_counter() + 0.6
    in_threads(
        *(
            lambda e=engine: e.run_until(lambda: time.perf_counter() > until)
            for engine in first + second
        )
    )
    two, one = (sum(engine.seconds(until) for engine in model) for model in (first, second))
    assert abs(two - one) < 0.2 * max(two, one)


def test_a_step_waits_for_cpus_for_all_of_its_threads() -> None:
    share = FairShare(3)
    [pair], singles = share.join(1, threads=2), share.join(2)
    with singles[0], singles[1]:
        waiting = threading.Thread(target=pair.__enter__)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join(10)
    assert not waiting.is_alive()
    pair.__exit__(None, None, None)


def test_more_threads_than_cpus_are_no_reason_to_wait_for_ever() -> None:
    [turns] = FairShare(2).join(1, threads=8)
    with turns:
        pass


class Stopwatch:
    """Adds up the time of an engine's steps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_step(self, report: StepStats, stats: EngineStats, step_seconds: float) -> None:
        self.seconds += step_seconds


async def test_flooded_models_get_equal_shares_whatever_a_step_of_theirs_costs() -> None:
    share = FairShare(1)
    watches = [Stopwatch(), Stopwatch()]
    bridges = [
        AsyncEngine([slow_engine(step_seconds)], watch, share.join())
        for step_seconds, watch in zip((0.002, 0.008), watches, strict=True)
    ]
    for bridge in bridges:
        bridge.start()
    flood = [GenerationRequest(str(i), (3,), ignore_eos=True) for i in range(200)]
    floods = [asyncio.create_task(bridge.run(flood)) for bridge in bridges]
    await asyncio.sleep(0.8)
    first, second = (watch.seconds for watch in watches)
    for task in floods:
        task.cancel()
    await asyncio.gather(*(bridge.shutdown() for bridge in bridges))
    assert first + second > 0.5
    assert abs(first - second) < 0.2 * max(first, second)


def slow_engine(step_seconds: float) -> Engine:
    graphs = toy_graphs()

    def bind(inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], None]:
        run = graphs.step.bind(inputs, outputs)

        def run_slowly() -> None:
            time.sleep(step_seconds)
            run()

        return run_slowly

    step = SimpleNamespace(bind=bind)
    return Engine(toy_bundle(), EngineConfig(4, 1), replace(graphs, step=step))


async def test_engines_that_take_turns_serve_all_their_requests() -> None:
    share = FairShare(1)
    bridges = [
        AsyncEngine([Engine(toy_bundle(), EngineConfig(4, 1), toy_graphs())], None, share.join())
        for _ in range(3)
    ]
    for bridge in bridges:
        bridge.start()
    requests = [GenerationRequest(str(i), (3 + i,)) for i in range(20)]
    answers = await asyncio.gather(*(bridge.run(requests) for bridge in bridges))
    assert answers[0] == answers[1] == answers[2]
    assert all(isinstance(event, FinishedEvent) for event in answers[0])
    await asyncio.gather(*(bridge.shutdown() for bridge in bridges))
