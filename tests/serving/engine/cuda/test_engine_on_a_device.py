"""An engine over device memory says what it says over the host's. The device is a fake one, which
does nothing before somebody waits for it.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from loadtest.bench.closed_loop import run_closed_loop
from serving.engine.arrays import Array
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_graph import Mirror, MirroredGraph
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graph, Graphs, Run
from serving.engine.states.store import Coarse
from serving.errors import DeviceError, OutOfMemory
from serving.requests.parameters import BeamParams
from serving.requests.request import Event, FailedEvent, FinishedEvent, GenerationRequest
from tests.devices.fake_cuda import FakeDeviceGraph, fake_memory
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import Script, toy_bundle, toy_graphs

CONFIG = EngineConfig(
    slots=7,
    threads=1,
    device="cuda",
    max_step_tokens=16,
    prefill_chunk=4,
    prefix_cache_bytes=2**12,
    encoder_cache_bytes=2**12,
)
NONE: frozenset[str] = frozenset()


class Device:
    """A fake device with the toy's graphs on it."""

    def __init__(
        self, has_encoder: bool, script: Script | None = None, host_inputs: frozenset[str] = NONE
    ) -> None:
        """host_inputs: of the encoder."""
        self.library, memory = fake_memory()
        mirror = Mirror(memory)
        graphs = toy_graphs(script, has_encoder)
        self.step = FakeDeviceGraph(self.library, graphs.step)
        step, encode = MirroredGraph(self.step, mirror), None
        if graphs.encode is not None:
            fake = FakeDeviceGraph(self.library, graphs.encode, host_inputs=host_inputs)
            encode = MirroredGraph(fake, mirror)
        self.graphs = Graphs(step, encode, memory, None, Coarse(), step)


def requests(has_encoder: bool) -> list[GenerationRequest]:
    """With known sources and prefixes among them."""
    sources = [(3 + i % 7, 9) * (1 + 4 * (i % 7)) for i in range(20)]
    return [
        GenerationRequest(
            str(i),
            source if has_encoder else None,
            (5, 6, 7) * (1 + i % 5) + (i,),
            beam=BeamParams(3) if i % 4 == 0 else None,
        )
        for i, source in enumerate(sources)
    ]


@pytest.mark.parametrize("most_recordings", [None, 3, 0])
@pytest.mark.parametrize("has_encoder", [True, False])
def test_an_engine_says_the_same_over_device_memory(
    has_encoder: bool, most_recordings: int | None
) -> None:
    """Whether all of its shapes could be recorded, some or none."""
    bundle, sent = toy_bundle(has_encoder), requests(has_encoder)
    config = EngineConfig(slots=7, threads=1)
    on_host = run_all(Engine(bundle, config, toy_graphs(None, has_encoder)), sent)
    device = Device(has_encoder)
    device.step.most_recordings = most_recordings
    engine = Engine(bundle, CONFIG, device.graphs)
    engine.warm_up()
    on_device = run_all(engine, sent)
    assert all(isinstance(story.final, FinishedEvent) for story in on_device.values())
    assert on_device == on_host


def test_what_the_encoder_reads_on_the_host_stays_there() -> None:
    bundle, sent = toy_bundle(), requests(has_encoder=True)
    on_host = run_all(Engine(bundle, EngineConfig(slots=7, threads=1), toy_graphs()), sent)
    device = Device(has_encoder=True, host_inputs=frozenset({"source_lengths"}))
    assert run_all(Engine(bundle, CONFIG, device.graphs), sent) == on_host


def test_after_the_start_no_memory_is_asked_for_and_nothing_is_recorded() -> None:
    device = Device(has_encoder=False)
    engine = Engine(toy_bundle(False), CONFIG, device.graphs)
    engine.warm_up()
    num_used, num_recorded = device.library.num_used, device.step.num_recorded
    rows, places = {1, 2, 3, 4, 6, 7}, {False, True}  # of 7 slots; of the state that is replaced
    assert num_recorded == len(rows) * len(places)
    run_all(engine, requests(has_encoder=False))
    assert (device.library.num_used, device.step.num_recorded) == (num_used, num_recorded)


def test_the_rows_of_every_step_are_recorded_ones() -> None:
    script = Script()
    engine = Engine(toy_bundle(), CONFIG, Device(True, script).graphs)
    engine.warm_up()
    script.step_shapes.clear()
    run_all(engine, requests(has_encoder=True))
    assert {rows for rows, _ in script.step_shapes} <= {1, 2, 3, 4, 6, 7}


def test_the_bench_steps_on_the_thread_that_recorded() -> None:
    device = Device(has_encoder=True)
    engine = Engine(toy_bundle(), CONFIG, device.graphs)
    engine.warm_up()
    num_recorded = device.step.num_recorded
    for _ in range(2):
        assert run_closed_loop(engine, requests(has_encoder=True), 5).requests == 20
    assert device.step.num_recorded == num_recorded > 0


async def test_recordings_are_made_on_the_thread_that_steps() -> None:
    """See the fake refuse them on another thread, as ONNX Runtime would make them anew there."""
    device = Device(has_encoder=True)
    bridge = AsyncEngine([Engine(toy_bundle(), CONFIG, device.graphs)])
    bridge.start()
    num_recorded = device.step.num_recorded
    events = await bridge.run(requests(has_encoder=True))
    await bridge.shutdown()
    assert all(isinstance(event, FinishedEvent) for event in events)
    assert device.step.num_recorded == num_recorded > 0


class Failing:
    """A graph that fails from some run on."""

    def __init__(self, graph: Graph, error: Exception, num_good: int = 0) -> None:
        self.graph, self.error, self.num_left = graph, error, num_good

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self.graph.bind(inputs, outputs)

        def run_or_fail() -> None:
            self.num_left -= 1
            if self.num_left < 0:
                raise self.error
            run()

        return run_or_fail


def failed(events: Iterable[Event]) -> list[Exception]:
    return [event.error for event in events if isinstance(event, FailedEvent)]


def test_who_finds_no_memory_is_refused_and_the_engine_lives_on() -> None:
    graphs = Device(has_encoder=True).graphs
    assert graphs.encode is not None
    encode = Failing(graphs.encode, OutOfMemory("the GPU's memory is full"), num_good=1)
    engine = Engine(toy_bundle(), CONFIG, replace(graphs, encode=encode))
    first, second = GenerationRequest("first", (3, 4)), GenerationRequest("second", (5,) * 40)
    engine.submit(first)
    events = engine.step()
    engine.submit(second)
    while engine.has_work:
        events += engine.step()
    [error] = failed(events)
    assert type(error) is OutOfMemory
    assert [event.request_id for event in events if isinstance(event, FinishedEvent)] == ["first"]
    assert engine.stats().num_rows == 0


async def test_a_device_that_has_failed_ends_the_engine_not_its_requests_alone() -> None:
    graphs = Device(has_encoder=True).graphs
    step = Failing(graphs.step, DeviceError("the GPU failed"), num_good=4)
    engine = Engine(toy_bundle(), CONFIG, replace(graphs, step=step, recording=None))
    bridge = AsyncEngine([engine])
    bridge.start()
    assert failed(await bridge.run([GenerationRequest("r", (3, 4))]))
    await bridge.shutdown()
    assert not bridge.is_alive


def test_what_fails_while_an_engine_warms_up_is_told_to_who_starts_it() -> None:
    graphs = Device(has_encoder=True).graphs
    step = Failing(graphs.step, OutOfMemory("the GPU's memory is full"))
    engine = Engine(toy_bundle(), CONFIG, replace(graphs, step=step, recording=None))
    bridge = AsyncEngine([engine])
    with pytest.raises(OutOfMemory):
        bridge.start()
    assert not bridge.is_alive


def test_there_are_no_more_rows_than_memory_has_room_for() -> None:
    graphs = replace(Device(has_encoder=True).graphs, max_rows=3)
    assert Engine(toy_bundle(), CONFIG, graphs).stats().num_slots == 3


def test_free_rows_read_one_token_at_the_beginning() -> None:
    """Not where the row that left them was: a graph runs over them too."""
    script = Script()
    device = Device(True, script)
    engine = Engine(toy_bundle(), CONFIG, device.graphs)
    run_all(engine, requests(has_encoder=True)[:5])
    script.step_totals.clear()
    run_all(engine, [GenerationRequest("alone", (3, 4), (), beam=BeamParams(5))])
    assert {len(totals) for totals in script.step_totals} >= {1, 6}
    padded = [totals[5] for totals in script.step_totals if len(totals) == 6]
    assert {*padded} == {1}
