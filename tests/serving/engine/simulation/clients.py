"""Made-up clients of an engine: what they ask for, when they give up, and what they are told."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

from serving.engine.bridge import AsyncEngine
from serving.errors import DeadlineExceeded, EngineError, EngineStopped, Overloaded, RequestError
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
)
from tests.serving.engine.driving import Story, comparable_story
from tests.serving.engine.simulation.replica import POISON, Replica, ReplicaLost

_WAYS = ("generate", "stream", "run")
_SEARCHES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"sampling": SamplingParams(1.0, seed=5)},
    {"beam": BeamParams(2)},
)


class Client:
    """Sends requests as one job, and reads their events.

    gives_up: reads so many batches of events at most; None reads all.
    leaves_after: seconds after which its task is cancelled; None stays.
    model: the number of the model that it asks.
    """

    def __init__(
        self, random: Random, name: str, has_encoder: bool, model: int, latest_start: float
    ) -> None:
        self.way, self.model = random.choice(_WAYS), model
        many = random.choice((0, 1, 1, 1, 2, 5, 12)) if self.way != "generate" else 1
        self.starts_after = random.uniform(0, latest_start)
        self.leaves_after = random.uniform(0, 2) if random.random() < 0.2 else None
        self.gives_up = random.randint(0, 4) if random.random() < 0.2 else None
        job = {
            "job_id": f"job-{name}",
            "share": random.choice("abc"),
            "priority": random.choice((-1, 0, 0, 0, 1)),
            "streams": self.way != "run",
            "timeout_seconds": random.choice((None, None, None, 0.5, 2.0)),
        }
        self.requests = [
            _request(random, f"{name}-{number}", has_encoder, job) for number in range(many)
        ]
        self.stories = {request.request_id: Story() for request in self.requests}
        self.refusal: Exception | None = None
        self.submitted_at = 0.0
        self.left = False

    async def act(self, pick: Callable[[], Replica], now: Callable[[], float]) -> None:
        """pick: returns a replica that lives, as HAProxy does."""
        await asyncio.sleep(self.starts_after)
        self.submitted_at = now()
        try:
            async with asyncio.timeout(self.leaves_after):
                await self._ask_again(pick)
        except TimeoutError:
            self.left = True
        except (Overloaded, EngineStopped, RequestError) as error:
            self.refusal = error

    async def _ask_again(self, pick: Callable[[], Replica]) -> None:
        """Ask another replica if one is lost, unless it has answered in part already."""
        while True:
            replica = pick()
            try:
                await replica.serve(self._ask(replica.models[self.model]))
            except ReplicaLost:
                if any(story.said or story.final for story in self.stories.values()):
                    self.left = True
                    return
            else:
                return

    async def _ask(self, engine: AsyncEngine) -> None:
        if self.way == "run":
            for event in await engine.run(self.requests):
                self._hear(event)
            return
        stream = self._stream(engine)
        num_read = 0
        async with aclosing(stream):
            async for events in stream:
                for event in events:
                    self._hear(event)
                num_read += 1
                if num_read == self.gives_up:
                    self.left = True
                    return

    async def _stream(self, engine: AsyncEngine) -> Any:
        if self.way == "stream":
            async for events in engine.stream(self.requests):
                yield events
        else:
            async with aclosing(engine.generate(self.requests[0])) as single:
                async for event in single:
                    yield [event]

    def _hear(self, event: Event) -> None:
        self.stories[event.request_id].add(event)

    def check(self, alone: "Alone", ended_at: float, may_fail: bool) -> None:
        """may_fail: whether steps fail, or the engine stops, in this simulation."""
        if self.refusal is not None:
            is_stopped = isinstance(self.refusal, EngineStopped)
            assert self.requests or is_stopped, f"nothing was asked, and refused: {self.refusal}"
            assert may_fail or not is_stopped, self.refusal
            if isinstance(self.refusal, RequestError):
                assert self.refusal.field == "num_beams"  # more beams than rows
            assert all(story.final is None for story in self.stories.values())
            return
        for request in self.requests:
            story = self.stories[request.request_id]
            expected = alone.story(request)
            if isinstance(story.final, FinishedEvent):
                assert comparable_story(story) == comparable_story(expected)
                continue
            assert story.said == expected.said[: len(story.said)]
            match story.final:
                case None:
                    assert self.left, f"{request.request_id} has no end"
                case FailedEvent(error=DeadlineExceeded()):
                    assert request.timeout_seconds is not None
                    assert ended_at >= self.submitted_at + request.timeout_seconds
                case FailedEvent(error=EngineError()) | AbortedEvent():
                    assert may_fail, story.final
                case _:
                    raise AssertionError(story.final)


def _request(
    random: Random, name: str, has_encoder: bool, job: dict[str, Any]
) -> GenerationRequest:
    """Texts come again, whole or continued, so that caches have something to find."""
    length = random.choice((1, 4, 9))
    text = tuple((3 + 5 * i) % 44 + 3 for i in range(length))
    text += (random.choice((9, 17, POISON if random.random() < 0.05 else 23)),)
    return GenerationRequest(
        name,
        source_ids=text if has_encoder else None,
        prompt_ids=() if has_encoder else text,
        max_new_tokens=random.choice((1, 3, 11)),
        **random.choice(_SEARCHES),
        **job,
    )


async def act_in_turn(
    clients: Sequence[Client], pick: Callable[[], Replica], now: Callable[[], float]
) -> None:
    """Let each ask as soon as the one before it has its answer."""
    for client in clients:
        await client.act(pick, now)


class Alone:
    """What requests are answered when nobody else is there.

    run: runs a request on an engine of its own.
    """

    def __init__(self, run: Callable[[GenerationRequest], Story]) -> None:
        self._run = run

    @cached_property
    def _known(self) -> dict[GenerationRequest, Story]:
        return {}

    def story(self, request: GenerationRequest) -> Story:
        plain = replace(
            request,
            request_id="alone",
            job_id="",
            share="",
            priority=0,
            streams=False,
            timeout_seconds=None,
        )
        if plain not in self._known:
            self._known[plain] = self._run(plain)
        return self._known[plain]
