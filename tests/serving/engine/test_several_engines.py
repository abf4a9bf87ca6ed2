"""Engines side by side: one queue, one set of promises, the same bytes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from serving.engine.arrays import Array
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs, share_attention_graphs
from serving.engine.runtime.planning import CpuBudget
from serving.engine.scheduling.admission import SharedParts
from serving.engine.stats import EngineStats, StepStats
from serving.errors import DeadlineExceeded, EngineStopped, Overloaded, RequestError
from serving.pipelines.loading import ModelParts
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    OutputTokens,
)
from tests.served import eventually
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import Script, toy_bundle, toy_graphs
from tests.tiny import tiny_bundle

SLOTS = 4


class WatchedEngines:
    """Lets two engines of the toy step, and tells which rows each of them has had."""

    def __init__(self, has_encoder: bool = True, **sizes: int) -> None:
        config = EngineConfig(slots=SLOTS, threads=1, **sizes)  # type: ignore[arg-type]
        bundle = toy_bundle(has_encoder)
        self.scripts = [Script(), Script()]
        self.may_step = [threading.Event(), threading.Event()]
        shared = SharedParts.create(bundle.manifest, config, toy_graphs())
        self.engines = [
            Engine(bundle, config, self._graphs(i, has_encoder), (), shared) for i in range(2)
        ]
        for event in self.may_step:
            event.set()

    def _graphs(self, number: int, has_encoder: bool) -> Graphs:
        graphs = toy_graphs(self.scripts[number], has_encoder)

        def bind(inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], None]:
            run = graphs.step.bind(inputs, outputs)

            def run_when_allowed() -> None:
                self.may_step[number].wait(10)
                run()

            return run_when_allowed

        return replace(graphs, step=type("Gated", (), {"bind": staticmethod(bind)})())

    def rows(self) -> list[int]:
        return [engine.stats().num_rows for engine in self.engines]


@asynccontextmanager
async def running(watched: WatchedEngines, observer: object = None) -> AsyncIterator[AsyncEngine]:
    bridge = AsyncEngine(watched.engines, observer)  # type: ignore[arg-type]
    bridge.start()
    try:
        yield bridge
    finally:
        for event in watched.may_step:
            event.set()
        await bridge.shutdown()


def endless(number: int, **options: object) -> GenerationRequest:
    return GenerationRequest(str(number), (3 + number % 9,), ignore_eos=True, **options)  # type: ignore[arg-type]


def test_an_engine_takes_no_more_than_its_share() -> None:
    watched = WatchedEngines()
    first, second = watched.engines
    first.submit(*(endless(i) for i in range(4)))
    first.step()
    assert watched.rows() == [2, 0]
    second.step()
    assert watched.rows() == [2, 2]
    first.submit(endless(4))
    second.step()
    assert watched.rows() == [2, 3]


def test_who_has_less_to_do_takes_the_next() -> None:
    watched = WatchedEngines()
    first, second = watched.engines
    first.submit(*(endless(i) for i in range(6)))
    first.step(), second.step()
    for request_id in ("0", "1"):
        first.cancel(request_id)
    first.submit(endless(6))
    second.step()
    assert watched.rows() == [1, 3] or watched.rows() == [2, 3]
    first.step()
    assert watched.rows() == [2, 3]


def test_rows_of_one_beam_search_stay_together() -> None:
    watched = WatchedEngines()
    first, second = watched.engines
    first.submit(*(endless(i, beam=BeamParams(4)) for i in range(2)))
    for _ in range(3):
        first.step(), second.step()
    assert [len({*engine._batch.generations}) for engine in watched.engines] == [1, 1]


def test_prompts_are_shared_evenly_too() -> None:
    watched = WatchedEngines(has_encoder=False)
    first, second = watched.engines
    first.submit(*(GenerationRequest(str(i), None, (3, 4, 5), ignore_eos=True) for i in range(6)))
    first.step(), second.step(), first.step(), second.step()
    assert watched.rows() == [3, 3]


def test_the_queues_bound_counts_the_rows_of_all() -> None:
    watched = WatchedEngines(max_waiting=2)
    first, second = watched.engines
    first.submit(*(endless(i) for i in range(2 * SLOTS + 2)))
    with pytest.raises(Overloaded):
        second.submit(endless(99))
    first.step(), second.step()
    with pytest.raises(Overloaded):
        second.submit(endless(99))
    assert second.stats().num_waiting == 2


def test_a_name_is_in_use_whoever_has_it() -> None:
    first, second = WatchedEngines().engines
    first.submit(endless(1))
    first.step()
    with pytest.raises(RequestError, match="in use"):
        second.submit(endless(1))
    second.cancel("1")  # not this engine's to end
    assert first.stats().num_rows == 1
    first.cancel("1")
    first.step()
    second.submit(endless(1))


def test_a_deadline_passes_in_the_queue_whichever_engine_looks() -> None:
    first, second = WatchedEngines().engines
    first.submit(*(endless(i) for i in range(2 * SLOTS)))
    first.step(), second.step()
    first.submit(endless(50, timeout_seconds=0.001))
    threading.Event().wait(0.005)
    [failed] = [event for event in second.step() if isinstance(event, FailedEvent)]
    assert failed.request_id == "50"
    assert isinstance(failed.error, DeadlineExceeded)
    assert not [event for event in first.step() if event.request_id == "50"]


async def test_many_requests_end_once_each_with_the_same_answers() -> None:
    requests = [GenerationRequest(str(i), (3 + i % 9, 4)) for i in range(200)]
    alone = Engine(toy_bundle(), EngineConfig(SLOTS, 1), toy_graphs())
    expected = run_all(alone, requests[:9])
    watched = WatchedEngines()
    async with running(watched) as bridge:
        events = await bridge.run(requests)
        assert bridge.stats().num_rows == bridge.stats().num_waiting == 0
    for number, event in enumerate(events):
        assert said(event) == said(expected[str(number % 9)].final)
    assert all(script.step_shapes for script in watched.scripts)


def said(event: Event | None) -> OutputTokens:
    assert isinstance(event, FinishedEvent)
    return event.best.tokens


async def test_a_request_goes_past_an_engine_that_is_busy() -> None:
    watched = WatchedEngines()
    watched.may_step[0].clear()
    async with running(watched) as bridge:
        stuck = asyncio.create_task(bridge.run([endless(0)]))
        while watched.rows() != [1, 0]:
            await asyncio.sleep(0.001)
        for number in range(1, 8):
            [event] = await asyncio.wait_for(bridge.run([endless(number)]), 10)
            assert isinstance(event, FinishedEvent)
        assert not stuck.done()
        watched.may_step[0].set()
        await stuck


async def test_cancelling_reaches_whoever_has_the_request() -> None:
    watched = WatchedEngines()
    async with running(watched) as bridge:
        streams = [bridge.generate(endless(i)) for i in range(12)]
        firsts = await asyncio.gather(*(anext(stream) for stream in streams[:8]))
        assert len(firsts) == 8
        for stream in streams:
            await stream.aclose()
        async with aclosing(bridge.generate(endless(99))) as stream:
            await anext(stream)
        await bridge.run([GenerationRequest("after", (4,))])
        while bridge.stats().num_rows:
            await asyncio.sleep(0.001)
    assert watched.rows() == [0, 0]


async def test_shutting_down_ends_what_waits_and_what_runs() -> None:
    watched = WatchedEngines()
    async with running(watched) as bridge:
        run = asyncio.create_task(bridge.run([endless(i) for i in range(500)]))
        await asyncio.sleep(0)
        await bridge.shutdown()
        events = await asyncio.wait_for(run, 10)
        assert isinstance(events[-1], AbortedEvent)
        with pytest.raises(EngineStopped):
            await bridge.run([endless(1)])


async def test_where_one_engine_dies_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedEngines()

    def fail() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(watched.engines[1], "step", fail)
    async with running(watched) as bridge:
        events = await asyncio.wait_for(bridge.run([endless(i) for i in range(40)]), 10)
        assert len(events) == 40
        assert {*map(type, events)} <= {FailedEvent, AbortedEvent, FinishedEvent}
        assert await asyncio.to_thread(eventually, lambda: not bridge.is_alive)


async def test_an_observer_hears_of_every_engine_and_of_the_sum() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.rows, self.slots, self.joined = 0, set[int](), 0

        def on_step(self, step: StepStats, stats: EngineStats, seconds: float) -> None:
            self.rows = max(self.rows, stats.num_rows)
            self.slots.add(stats.num_slots)
            self.joined += len(step.queue_seconds)

    watcher = Watcher()
    async with running(WatchedEngines(), watcher) as bridge:
        await bridge.run([endless(i) for i in range(30)])
    assert watcher.slots == {2 * SLOTS}
    assert watcher.joined == 30
    assert 0 < watcher.rows <= 2 * SLOTS


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "llama"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
async def test_a_requests_bytes_do_not_depend_on_the_plan(
    family: str, precision: Precision, tmp_path: Path
) -> None:
    parts = ModelParts.open(tiny_bundle(family, tmp_path, precision))
    has_source = "encode" in parts.bundle.manifest.graphs
    drawn = SamplingParams(temperature=1.0, seed=7)
    kinds: list[dict[str, object]] = [
        {},
        {"sampling": drawn},
        {"beam": BeamParams(3, 2)},
        {"logprobs": 3},
    ]
    if has_source and family == "transformer":
        kinds.append({"alignment_heads": ()})
    requests = [
        GenerationRequest(
            f"{i}",
            tuple(range(5, 9 + i)) if has_source else None,
            () if has_source else tuple(range(5, 9 + i)),
            max_new_tokens=12,
            **kind,  # type: ignore[arg-type]
        )
        for i, kind in enumerate(kinds * 4)
    ]
    answers = [await run_under(parts, engines, threads, requests) for engines, threads in PLANS]
    assert answers[0] == answers[1] == answers[2] == answers[3]


PLANS = [(1, 1), (1, 2), (2, 1), (3, 2)]


async def run_under(
    parts: ModelParts, engines: int, threads: int, requests: list[GenerationRequest]
) -> list[object]:
    config = EngineConfig(slots=6)
    planned = parts.plan(config, CpuBudget(2, engines, threads))
    bridge = AsyncEngine(parts.engines(planned))
    bridge.start()
    try:
        events = await bridge.run(requests)
    finally:
        await bridge.shutdown()
    return [comparable(event) for event in events]


def comparable(event: Event) -> object:
    assert isinstance(event, FinishedEvent)
    alignments = [
        [row.tobytes() for row in hypothesis.tokens.alignments] for hypothesis in event.hypotheses
    ]
    said = [
        (replace(hypothesis.tokens, alignments=[]), hypothesis.score)
        for hypothesis in event.hypotheses
    ]
    return repr(said), alignments, event.reason, event.num_generated_tokens


def test_the_graph_for_attention_is_loaded_once_for_all() -> None:
    loaded: list[object] = []

    def load() -> object:
        loaded.append(object())
        return loaded[-1]

    graphs = share_attention_graphs(replace(toy_graphs(), attention=load))  # type: ignore[arg-type]
    assert graphs.attention is not None
    threads = [threading.Thread(target=graphs.attention) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1
