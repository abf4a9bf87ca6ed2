"""A simulated replica: models that share its processors, until it is stopped or killed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.fair_share import FairShare, ProcessorTurns
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.requests.request import Event
from tests.serving.engine.simulation.checks import FairnessCheck, ShareCheck, check_deadlines
from tests.serving.engine.simulation.stage import Clock, Stage
from tests.serving.engine.toy import VOCAB_SIZE, Script, toy_bundle, toy_graphs

POISON = 48  # a step or an encoder run that reads this token fails


class Died(BaseException):
    """Ends the thread of an engine, as running out of memory would."""


class ReplicaLost(Exception):
    """Its process was killed: the connection is closed."""


class PausingEngine(Engine):
    """Hands the baton back before and after it looks for work, and before each step."""

    dies_at: int | None = None
    num_steps = 0
    clock: Clock

    def pause(self) -> None:
        """Replaced by the stage."""

    @property
    def has_work(self) -> bool:
        self.pause()
        has_work = super().has_work
        self.pause()
        return has_work

    def step(self) -> list[Event]:
        self.pause()
        self.num_steps += 1
        if self.num_steps == self.dies_at:
            raise Died
        events = super().step()
        check_deadlines(self, self.clock.now)  # nobody has run since it looked at its own clock
        return events


class Replica:
    """Models of one process, on a stage."""

    def __init__(
        self, random: Random, stage: Stage, clock: Clock, has_encoder: bool, num_models: int
    ) -> None:
        self._random, self._stage, self._clock = random, stage, clock
        self.is_lost = False
        self._serving: set[asyncio.Task[Any]] = set()
        self._share = FairShare(random.choice((1, 2, 4)))
        stage.put_share_on(self._share)
        ShareCheck(self._share)
        self.engines = [self._engines(has_encoder) for _ in range(num_models)]
        self.models = [AsyncEngine(engines, turns=self._turns(engines)) for engines in self.engines]

    def start(self) -> None:
        for model, engines in zip(self.models, self.engines, strict=True):
            engines[0].scheduler._clock = self._clock.perf_counter
            FairnessCheck(engines[0].scheduler)
            self._stage.put_on(model)
        for model in self.models:
            model.start()

    async def serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a client. Raises ReplicaLost if the replica is killed meanwhile."""
        task = asyncio.create_task(work)
        self._serving.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if self.is_lost:
                raise ReplicaLost from None
            raise
        finally:
            self._serving.discard(task)

    def close(self) -> None:
        for model in self.models:
            model.close()

    def kill(self) -> None:
        """End its threads wherever they are, and close all connections."""
        self.is_lost = True
        for model in self.models:
            self._stage.take_off(model)
        for task in self._serving:
            task.cancel()

    def has_died(self) -> bool:
        """Return whether an engine has ended its thread by itself."""
        every = (engine for engines in self.engines for engine in engines)
        return any(each.dies_at and each.num_steps >= each.dies_at for each in every)

    def resting(self) -> Iterator[Engine]:
        """Yield the engines whose threads wait for a command that is not there."""
        for model in self.models:
            for worker in model._workers:
                actor: Any = worker._thread
                if worker._is_idle and not actor.can_run and not actor.has_ended:
                    yield worker.engine  # type: ignore[misc]  # always an Engine here

    def _turns(self, engines: list[PausingEngine]) -> list[ProcessorTurns]:
        """As `loading` makes them."""
        turns: list[ProcessorTurns] = []
        threads = self._random.choice((1, 2))
        for job_size in JobSize:
            count = sum(engine.job_size is job_size for engine in engines)
            weight: Callable[[], float] = partial(engines[0].scheduler.weight, job_size)
            turns += self._share.join(count, threads, weight)
        return turns

    def _engines(self, has_encoder: bool) -> list[PausingEngine]:
        pick = self._random.choice
        config = EngineConfig(
            slots=pick((1, 2, 5)),
            threads=1,
            max_waiting=pick((2, 10_000)),
            max_wait_seconds=pick((None, 1.0)),
            prefill_chunk=pick((1, 4, 64)),
            max_step_tokens=pick((3, 64)),
            max_encode_tokens=pick((16, 512)),
            prefix_cache_bytes=pick((0, 900, 2**20)),
            encoder_cache_bytes=pick((0, 900, 2**20)),
        )
        bundle = toy_bundle(has_encoder)
        shared = SharedParts.create(bundle.manifest, config, toy_graphs(None, has_encoder))
        common, small = JobSize
        sizes = pick(([common], [common, common], [common, small], [common, common, small]))
        engines = [
            PausingEngine(bundle, config, _graphs(has_encoder), (), shared, job_size)
            for job_size in sizes
        ]
        for engine in engines:
            engine.clock = self._clock
        return engines


def script() -> Script:
    """Return a script whose model never writes what makes steps fail."""
    return Script(possible=tuple(token for token in range(VOCAB_SIZE) if token != POISON))


def _graphs(has_encoder: bool) -> Any:
    poisoned = replace(script(), poisoned_sources={POISON}, poisoned_tokens={POISON})
    return toy_graphs(poisoned, has_encoder)
