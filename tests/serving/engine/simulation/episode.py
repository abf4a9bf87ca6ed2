"""One simulated stretch of a server's life, which a seed decides: replicas, clients, and an end."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from serving.engine import bridge, encoder_engine, engine, fair_share, rows, stats, worker
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.scheduling import admission
from serving.requests.request import GenerationRequest
from tests.serving.engine.driving import Story, run_alone
from tests.serving.engine.simulation.checks import RestCheck, check_counts, check_rest
from tests.serving.engine.simulation.clients import Alone, Client, act_in_turn
from tests.serving.engine.simulation.replica import POISON, Replica, script
from tests.serving.engine.simulation.stage import Clock, Stage
from tests.serving.engine.toy import toy_bundle, toy_graphs

_MOST_TURNS = 30_000  # of an episode; hardly any needs a tenth
_READ_TIME = (bridge, encoder_engine, engine, fair_share, rows, stats, worker, admission)


def run_episode(seed: int) -> int:
    """Run one; return its number of turns. Raises AssertionError where something does not hold."""
    random, clock = Random(seed), Clock()
    with _simulated_time(clock):
        return _Episode(random, clock).run()


@contextmanager
def _simulated_time(clock: Clock) -> Iterator[None]:
    names = [f"{module.__name__}.time" for module in _READ_TIME]
    patches = [patch(name, SimpleNamespace(perf_counter=clock.perf_counter)) for name in names]
    for time_patch in patches:
        time_patch.start()
    try:
        yield
    finally:
        for time_patch in patches:
            time_patch.stop()


class _Episode:
    def __init__(self, random: Random, clock: Clock) -> None:
        self.random, self.clock = random, clock
        self.has_encoder = random.random() < 0.5
        self.stage = Stage(random, clock)
        num_replicas, num_models = random.choice((1, 1, 1, 2)), random.choice((1, 1, 2))
        self.replicas = [
            Replica(random, self.stage, clock, self.has_encoder, num_models)
            for _ in range(num_replicas)
        ]
        names = map(str, count())
        latest = random.choice((0.2, 3.0))  # all at once, or while others are served
        self.sessions = [
            [
                Client(
                    random,
                    next(names),
                    self.has_encoder,
                    random.randrange(num_models),
                    0.0 if place else latest,
                )
                for place in range(random.choice((1, 2, 5)))
            ]
            for _ in range(random.randint(2, 9))
        ]
        self.clients = [client for session in self.sessions for client in session]
        self.closes_after = random.uniform(0, 4) if random.random() < 0.15 else None
        self.kills_after = random.uniform(0, 4) if num_replicas > 1 else None
        if random.random() < 0.1:
            engines = random.choice(random.choice(self.replicas).engines)
            random.choice(engines).dies_at = random.randint(1, 40)

    @property
    def living(self) -> list[Replica]:
        return [replica for replica in self.replicas if not replica.is_lost]

    def run(self) -> int:
        try:
            self._play()
            self._check_end()
            for replica in self.living:
                replica.close()
            for actor in self.stage.actors:
                actor.join()
        finally:
            self.stage.close()
        return self.stage.num_turns

    def _play(self) -> None:
        stage, now = self.stage, self.clock.perf_counter
        for replica in self.replicas:
            replica.start()
        tasks = [
            stage.loop.create_task(act_in_turn(session, self._pick, now))
            for session in self.sessions
        ]
        if self.closes_after is not None:
            for replica in self.replicas:
                stage.loop.call_later(self.closes_after, replica.close)
        if self.kills_after is not None:
            stage.loop.call_later(self.kills_after, self.replicas[0].kill)
        rests = RestCheck()
        while not all(task.done() for task in tasks) or not self._is_at_rest():
            stage.turn()
            for replica in self.living:
                for engines in replica.engines:
                    check_counts(engines[0].scheduler, engines)
            rests.check([session for replica in self.living for session in replica.resting()])
            assert stage.num_turns < _MOST_TURNS, "somebody waits for ever"
        for task in tasks:
            task.result()

    def _pick(self) -> Replica:
        return self.random.choice(self.living)

    def _is_at_rest(self) -> bool:
        """Return whether no thread has anything left to do."""
        return not any(actor.can_run for actor in self.stage.actors)

    def _check_end(self) -> None:
        ended = self.clock.now
        died = any(replica.has_died() for replica in self.replicas)
        poisoned = any(
            POISON in (*(request.source_ids or ()), *request.prompt_ids)
            for client in self.clients
            for request in client.requests
        )
        for replica in self.living:
            for model, engines in zip(replica.models, replica.engines, strict=True):
                assert not model._collectors
                if not replica.has_died():  # the thread that died has kept its rows
                    check_rest(engines[0].scheduler, engines)
        alone = _alone(self.has_encoder)
        may_fail = died or self.closes_after is not None or poisoned
        for client in self.clients:
            client.check(alone, ended, may_fail)


def _alone(has_encoder: bool) -> Alone:
    if has_encoder not in _KNOWN:
        _KNOWN[has_encoder] = Alone(lambda request: _run_alone(request, has_encoder))
    return _KNOWN[has_encoder]


_KNOWN: dict[bool, Alone] = {}


def _run_alone(request: GenerationRequest, has_encoder: bool) -> Story:
    config = EngineConfig(slots=9, threads=1, prefix_cache_bytes=0, encoder_cache_bytes=0)
    toy = Engine(toy_bundle(has_encoder), config, toy_graphs(script(), has_encoder))
    return run_alone(toy, request)
