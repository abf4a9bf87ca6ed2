"""An engine that works alone is lent the threads of the others; the outputs stay the same."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from serving.engine.arrays import Array
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.fair_share import FairShare
from serving.engine.runtime.graph import Graphs, LentThreads, lend_threads
from serving.engine.scheduling.admission import SharedParts
from serving.requests.request import FinishedEvent, GenerationRequest
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import ToyGraph, toy_bundle, toy_graphs

NUM_CPUS = 2


class TwoEngines:
    """Two engines of one thread, which are lent two; notes the threads of each of their steps.

    before_step: called with the number of an engine.
    """

    def __init__(self, before_step: Callable[[int], None] = lambda number: None) -> None:
        self.steps: list[list[int]] = [[], []]
        self.share = FairShare(NUM_CPUS)
        self._before_step = before_step
        bundle, config = toy_bundle(), EngineConfig(slots=4, threads=1)
        shared = SharedParts.create(bundle.manifest, config, toy_graphs())
        engines = [
            Engine(
                bundle,
                config,
                lend_threads(
                    self._graphs(number, 1), self._graphs(number, 2), LentThreads(1, 2, 1)
                ),
                (),
                shared,
            )
            for number in range(2)
        ]
        self.turns = self.share.join(2)
        self.bridge = AsyncEngine(engines, turns=self.turns)
        self.bridge.start()

    def _graphs(self, number: int, threads: int) -> Graphs:
        graphs = toy_graphs()
        assert isinstance(graphs.step, ToyGraph)
        run_step = graphs.step.function

        def step(inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
            self._before_step(number)
            self.steps[number].append(threads)
            run_step(inputs, outputs)

        return replace(graphs, step=ToyGraph(step))


def requests(*numbers: int, tokens: int = 12) -> list[GenerationRequest]:
    return [
        GenerationRequest(str(i), (5 + i, 9), max_new_tokens=tokens, ignore_eos=True)
        for i in numbers
    ]


def alone(request: GenerationRequest) -> object:
    engine = Engine(toy_bundle(), EngineConfig(threads=1), toy_graphs())
    [story] = run_all(engine, [request]).values()
    assert isinstance(story.final, FinishedEvent)
    return story.final.hypotheses


async def test_a_request_alone_has_all_threads() -> None:
    engines = TwoEngines()
    try:
        [event] = await engines.bridge.run(requests(1))
    finally:
        await engines.bridge.shutdown()
    steps = engines.steps[0] or engines.steps[1]
    assert not (engines.steps[0] and engines.steps[1])
    assert set(steps) == {2}
    assert isinstance(event, FinishedEvent)
    assert event.hypotheses == alone(requests(1)[0])


async def test_engines_that_work_at_once_have_their_own_threads_until_one_is_alone() -> None:
    """The first one has begun alone."""
    meeting, num_begun = threading.Barrier(2), [0, 0]

    def meet(number: int) -> None:
        """Begin the second to sixth steps of both engines together."""
        num_begun[number] += 1
        if sum(num_begun) == 1:  # the other engine waits for a processor
            while engines.share.has_few_others(turns[number], 0):
                time.sleep(0.001)
        elif 2 <= num_begun[number] <= 6:
            meeting.wait(30)
        else:
            time.sleep(0.02)  # longer than the other engine needs to end its turn

    engines = TwoEngines(meet)
    turns = engines.turns
    short, long = requests(1, tokens=6), requests(2, tokens=20)
    try:
        events = await engines.bridge.run([*short, *long])
    finally:
        await engines.bridge.shutdown()
    for request, event in zip([*short, *long], events, strict=True):
        assert isinstance(event, FinishedEvent)
        assert event.hypotheses == alone(request)
    steps = sorted(engines.steps, key=len)
    assert [len(numbers) for numbers in steps] == [6, 20]
    assert sorted(numbers[0] for numbers in steps) == [1, 2]
    assert [numbers[1:6] for numbers in steps] == [[1] * 5, [1] * 5]
    assert steps[1][-5:] == [2] * 5


async def test_nothing_is_lent_while_another_model_has_a_turn() -> None:
    """Its engine would have to wait until both processors are free."""
    engines = TwoEngines()
    [turns] = engines.share.join()
    try:
        with turns:
            await engines.bridge.run(requests(1))
    finally:
        await engines.bridge.shutdown()
    assert {*engines.steps[0], *engines.steps[1]} == {1}


def test_as_many_engines_as_their_threads_leave_room_for_are_lent_threads() -> None:
    share = FairShare(8)
    first, second, third = share.join(3, threads=2)
    with first:
        assert second.has_few_others(1)
        assert not second.has_few_others(0)
        with second:
            assert not third.has_few_others(1)
            assert first.has_few_others(1)
        [other] = share.join()
        with other:
            assert not second.has_few_others(2)
            assert not other.has_few_others(2)
