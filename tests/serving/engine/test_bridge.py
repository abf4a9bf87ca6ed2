"""The bridge: streams, bulk runs, cancelling by closing, shutting down."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from serving.engine.arrays import Array
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.stats import EngineStats, StepStats
from serving.errors import EngineStopped, Overloaded, RequestError
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    TokenEvent,
)
from tests.serving.engine.driving import run_alone
from tests.serving.engine.toy import Script, next_logp, toy_bundle, toy_graphs

UNSTOPPED = next(i for i in range(3, 50) if int(next_logp((i,), (1,)).argmax()) != 2)


class Watcher:
    def __init__(self) -> None:
        self.seen: list[tuple[StepStats, EngineStats]] = []

    def on_step(self, report: StepStats, stats: EngineStats, step_seconds: float) -> None:
        assert step_seconds >= sum(report.phase_seconds.values())
        self.seen.append((report, stats))


def new_engine(script: Script | None = None, **sizes: int) -> Engine:
    config = EngineConfig(slots=sizes.pop("slots", 4), threads=1, **sizes)  # type: ignore[arg-type]
    return Engine(toy_bundle(), config, toy_graphs(script))


@asynccontextmanager
async def serving(engine: Engine, watcher: Watcher | None = None) -> AsyncIterator[AsyncEngine]:
    bridge = AsyncEngine([engine], watcher)
    bridge.start()
    try:
        yield bridge
    finally:
        await bridge.shutdown()


async def test_a_stream_tells_what_the_engine_says() -> None:
    request = GenerationRequest("r", (3, 4, 5), streams=True)
    alone = run_alone(new_engine(), request)
    async with serving(new_engine()) as bridge:
        events = [event async for event in bridge.generate(request)]
    assert [each.token_id for each in events if isinstance(each, TokenEvent)] == alone.token_ids
    assert events[-1] == alone.final


async def test_a_request_that_does_not_stream_has_one_event() -> None:
    request = GenerationRequest("r", (3, 4, 5))
    async with serving(new_engine()) as bridge:
        [event] = [event async for event in bridge.generate(request)]
    assert event == run_alone(new_engine(), request).final


async def test_a_run_tells_the_end_of_every_request_in_order() -> None:
    requests = [GenerationRequest(str(i), (3 + i, 4)) for i in range(30)]
    async with serving(new_engine()) as bridge:
        events = await bridge.run(requests)
        assert await bridge.run([]) == []
    for request, event in zip(requests, events, strict=True):
        assert event == run_alone(new_engine(), request).final


async def test_many_callers_share_the_engine() -> None:
    async def call(bridge: AsyncEngine, i: int) -> list[int]:
        request = GenerationRequest(str(i), (3 + i % 9,))
        [event] = [event async for event in bridge.generate(request)]
        assert isinstance(event, FinishedEvent)
        return event.best.tokens.ids

    async with serving(new_engine()) as bridge:
        said = await asyncio.gather(*(call(bridge, i) for i in range(40)))
    assert all(said[i] == said[i % 9] for i in range(40))


async def test_closing_a_stream_cancels_its_request() -> None:
    engine = new_engine()
    async with serving(engine) as bridge:
        async with aclosing(bridge.generate(GenerationRequest("r", (UNSTOPPED,)))) as stream:
            await anext(stream)
        await bridge.run([GenerationRequest("after", (4,))])
        assert not engine.has_work
        assert engine.stats().num_rows == 0


class Gate:
    """Lets the engine's thread run a graph only when it is told to."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._permits = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)

    def graphs(self) -> Graphs:
        graphs = toy_graphs(self.script, has_encoder=False)
        return replace(graphs, step=self)

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], None]:
        run = toy_graphs(self.script, has_encoder=False).step.bind(inputs, outputs)

        def run_when_allowed() -> None:
            self._arrived.release()
            self._permits.acquire()
            run()

        return run_when_allowed

    async def let_through(self, num_runs: int) -> None:
        """And wait until the thread stands before the next one."""
        for _ in range(num_runs):
            await asyncio.to_thread(self._arrived.acquire)
            self._permits.release()
        await self.arrival()

    async def arrival(self) -> None:
        """Wait until the thread stands before a run."""
        await asyncio.to_thread(self._arrived.acquire)
        self._arrived.release()

    def open(self) -> None:
        self._permits.release(10_000)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("num_runs", [1, 6])
async def test_a_cancelled_request_frees_its_rows_within_one_step(
    num_runs: int, num_beams: int
) -> None:
    """While its prompt comes in, and while it decodes."""
    gate = Gate(Script())
    config = EngineConfig(slots=4, threads=1, prefill_chunk=4, max_step_tokens=4)
    engine = Engine(toy_bundle(has_encoder=False), config, gate.graphs())
    request = GenerationRequest(
        "r", None, tuple(range(3, 19)), beam=BeamParams(num_beams), ignore_eos=True
    )
    async with serving(engine) as bridge:
        task = asyncio.create_task(bridge.run([request]))
        await gate.let_through(num_runs)  # of 4 chunks, and then single tokens
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        (event,) = await bridge.run([GenerationRequest("after", None, (), max_new_tokens=1)])
        assert isinstance(event, FinishedEvent)
        assert len(gate.script.step_shapes) == num_runs + 1 + 1  # the one that ran, and the other's
        assert engine.stats().num_rows == engine.stats().num_waiting == 0


async def test_cancelling_a_run_cancels_all_its_requests() -> None:
    engine = new_engine(slots=1)
    async with serving(engine) as bridge:
        requests = [GenerationRequest(str(i), (UNSTOPPED,)) for i in range(200)]
        task = asyncio.create_task(bridge.run(requests))
        await bridge.run([])
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bridge.run([GenerationRequest("after", (4,))])
        assert not engine.has_work


async def test_an_engine_that_sleeps_is_woken_by_the_end_of_another_ones_large_job() -> None:
    """While there was one, small jobs were not for it."""
    first, second, small = gates = [Gate(Script()) for _ in range(3)]
    # One slot: otherwise an engine may take both requests of the job.
    bundle, config = toy_bundle(has_encoder=False), EngineConfig(slots=1, threads=1)
    shared = SharedParts.create(bundle.manifest, config, first.graphs())
    sizes = (JobSize.COMMON, JobSize.COMMON, JobSize.SMALL)
    bridge = AsyncEngine(
        [
            Engine(bundle, config, gate.graphs(), (), shared, job_size)
            for gate, job_size in zip(gates, sizes, strict=True)
        ]
    )
    bridge.start()

    def request_for(name: str, job: str = "") -> GenerationRequest:
        return GenerationRequest(name, None, (), max_new_tokens=1, job_id=job)

    large = asyncio.create_task(bridge.run([request_for("1", "large"), request_for("2", "large")]))
    await asyncio.gather(first.arrival(), second.arrival())
    second.open()  # it does its half and sleeps
    tasks = [asyncio.create_task(bridge.run([request_for("beside")]))]
    await small.arrival()  # and goes no further
    tasks += [asyncio.create_task(bridge.run([request_for(name)])) for name in "ab"]
    await asyncio.sleep(0.1)
    await first.let_through(1)  # the large job ends; this engine takes one of the two that wait
    done, _ = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert large.done() and len(done) == 1
    for gate in gates:
        gate.open()
    await asyncio.gather(*tasks)
    await bridge.shutdown()


async def test_refusals_reach_the_caller_and_nobody_else() -> None:
    async with serving(new_engine(slots=1, max_waiting=1)) as bridge:
        with pytest.raises(RequestError, match="source_ids"):
            await anext(bridge.generate(GenerationRequest("r", None)))
        with pytest.raises(Overloaded):
            await bridge.run([GenerationRequest(str(i), (3,)) for i in range(3)])
        (event,) = await bridge.run([GenerationRequest("r", (3,))])
        assert isinstance(event, FinishedEvent)


async def test_a_failure_ends_the_requests_concerned_and_the_engine_serves_on() -> None:
    async with serving(new_engine(Script(poisoned_sources={49}))) as bridge:
        (event,) = await bridge.run([GenerationRequest("bad", (49,))])
        assert isinstance(event, FailedEvent)
        (event,) = await bridge.run([GenerationRequest("good", (3,))])
        assert isinstance(event, FinishedEvent)


async def test_shutting_down_ends_everything() -> None:
    bridge = AsyncEngine([new_engine(slots=1)])
    bridge.start()
    requests = [GenerationRequest(str(i), (UNSTOPPED,)) for i in range(500)]
    run = asyncio.create_task(bridge.run(requests))
    await asyncio.sleep(0)
    await bridge.shutdown()
    events = await asyncio.wait_for(run, 10)
    assert isinstance(events[-1], AbortedEvent)
    assert not bridge.is_alive
    with pytest.raises(EngineStopped):
        await bridge.run(requests)
    await bridge.shutdown()


async def test_if_the_thread_dies_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()

    def fail() -> None:
        raise ValueError("a bug")

    async with serving(engine) as bridge:
        monkeypatch.setattr(engine, "step", fail)
        (event,) = await asyncio.wait_for(bridge.run([GenerationRequest("r", (3,))]), 10)
        assert isinstance(event, FailedEvent)
        assert not bridge.is_alive


async def test_an_observer_sees_every_step() -> None:
    watcher = Watcher()
    sampling = SamplingParams(temperature=1.0, seed=3)
    request = GenerationRequest("r", (3, 4, 5), prompt_ids=(6, 7), sampling=sampling)
    async with serving(new_engine(), watcher) as bridge:
        await bridge.run([request])
    first, stats = watcher.seen[0]
    assert set(first.phase_seconds) == {"encode", "decode"}
    assert (first.num_rows, first.num_source_tokens, first.num_padded_tokens) == (1, 3, 4)
    assert len(first.queue_seconds) == 1
    assert (stats.num_rows, stats.num_slots, stats.num_waiting) == (1, 4, 0)
    # hidden twice and summary; past times history; source length times memory; all float32
    assert stats.kv_bytes == 4 * ((2 * 4 + 2) + 1 * 2 * 3 + 3 * 2 * 3)
