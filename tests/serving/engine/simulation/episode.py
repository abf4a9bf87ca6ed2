"""One simulated stretch of a replica's life, which a seed decides: engines, clients, and an end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from serving.engine import bridge, encoder_engine, engine, measures, rows, worker
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.scheduling import admission
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.request import Event, GenerationRequest
from tests.serving.engine.driving import Story, run_alone
from tests.serving.engine.simulation.checks import (
    FairnessCheck,
    RestCheck,
    check_counts,
    check_rest,
)
from tests.serving.engine.simulation.clients import POISON, Alone, Client, act_in_turn
from tests.serving.engine.simulation.stage import Clock, Stage
from tests.serving.engine.toy import VOCAB_SIZE, Script, toy_bundle, toy_graphs

_MOST_TURNS = 30_000  # of an episode; hardly any needs a tenth
_READ_TIME = (bridge, encoder_engine, engine, measures, rows, worker, admission)


class Died(BaseException):
    """Ends the thread of an engine, as running out of memory would."""


class PausingEngine(Engine):
    """Hands the baton back before and after it looks for work, and before each step."""

    dies_at: int | None = None
    num_steps = 0

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
        return super().step()


def run_episode(seed: int) -> int:
    """Run one; return its number of turns. Raises AssertionError where something does not hold."""
    random, clock = Random(seed), Clock()
    with _simulated_time(clock):
        return _Episode(random, clock).run()


@contextmanager
def _simulated_time(clock: Clock) -> Iterator[None]:
    names = [f"{module.__name__}.time" for module in _READ_TIME]
    patches = [patch(name, SimpleNamespace(perf_counter=clock.perf_counter)) for name in names]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


class _Episode:
    def __init__(self, random: Random, clock: Clock) -> None:
        self.random, self.clock = random, clock
        self.has_encoder = random.random() < 0.5
        self.engines = self._engines()
        self.scheduler = self.engines[0].scheduler
        self.scheduler._clock = clock.perf_counter
        self.fairness = FairnessCheck(self.scheduler)
        self.bridge = AsyncEngine(self.engines)
        self.stage = Stage(random, clock)
        names = map(str, count())
        latest = random.choice((0.2, 3.0))  # all at once, or while others are served
        self.sessions = [
            [
                Client(random, next(names), self.has_encoder, 0.0 if place else latest)
                for place in range(random.choice((1, 2, 5)))
            ]
            for _ in range(random.randint(2, 9))
        ]
        self.clients = [client for session in self.sessions for client in session]
        self.closes_after = random.uniform(0, 4) if random.random() < 0.15 else None
        if random.random() < 0.1:
            random.choice(self.engines).dies_at = random.randint(1, 40)

    def _engines(self) -> list[PausingEngine]:
        pick = self.random.choice
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
        bundle = toy_bundle(self.has_encoder)
        shared = SharedParts.of(bundle.manifest, config, toy_graphs(None, self.has_encoder))
        common, small = JobSize
        sizes = pick(([common], [common, common], [common, small], [common, common, small]))
        return [
            PausingEngine(bundle, config, self._graphs(), (), shared, job_size)
            for job_size in sizes
        ]

    def _graphs(self) -> Any:
        return toy_graphs(
            replace(_script(), poisoned_sources={POISON}, poisoned_tokens={POISON}),
            self.has_encoder,
        )

    def run(self) -> int:
        try:
            self._play()
            self._check_end()
            self.bridge.close()
            for actor in self.stage.actors:
                actor.join()
        finally:
            self.stage.close()
        return self.stage.num_turns

    def _play(self) -> None:
        stage, bridge = self.stage, self.bridge
        stage.put_on(bridge)
        bridge.start()
        now, rests = self.clock.perf_counter, RestCheck()
        tasks = [stage.loop.create_task(act_in_turn(each, bridge, now)) for each in self.sessions]
        if self.closes_after is not None:
            stage.loop.call_later(self.closes_after, bridge.close)
        while not all(task.done() for task in tasks) or not self._is_at_rest():
            stage.turn()
            check_counts(self.scheduler, self.engines)
            rests.check(self._resting())
            assert stage.num_turns < _MOST_TURNS, "somebody waits for ever"
        for task in tasks:
            task.result()

    def _resting(self) -> Iterator[Engine]:
        for actor, resting in zip(self.stage.actors, self.engines, strict=True):
            if not actor.can_run and not actor.has_ended:
                yield resting

    def _is_at_rest(self) -> bool:
        """Return whether no thread has anything left to do."""
        return not any(actor.can_run for actor in self.stage.actors)

    def _check_end(self) -> None:
        ended = self.clock.now
        died = any(each.dies_at and each.num_steps >= each.dies_at for each in self.engines)
        stops = died or self.closes_after is not None
        poisoned = any(
            POISON in (*(each.source_ids or ()), *each.prompt_ids)
            for client in self.clients
            for each in client.requests
        )
        assert self.bridge._tickets.all_ids() == []
        if not died:  # the thread that died has kept its rows
            check_rest(self.scheduler, self.engines)
        alone = _alone(self.has_encoder)
        for client in self.clients:
            client.check(alone, ended, may_fail=stops or poisoned)


def _script() -> Script:
    """Return a script whose model never writes what makes steps fail."""
    return Script(possible=tuple(token for token in range(VOCAB_SIZE) if token != POISON))


def _alone(has_encoder: bool) -> Alone:
    if has_encoder not in _KNOWN:
        _KNOWN[has_encoder] = Alone(lambda request: _run_alone(request, has_encoder))
    return _KNOWN[has_encoder]


_KNOWN: dict[bool, Alone] = {}


def _run_alone(request: GenerationRequest, has_encoder: bool) -> Story:
    config = EngineConfig(slots=9, threads=1, prefix_cache_bytes=0, encoder_cache_bytes=0)
    toy = Engine(toy_bundle(has_encoder), config, toy_graphs(_script(), has_encoder))
    return run_alone(toy, request)
