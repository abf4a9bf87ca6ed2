"""An engine whose requests are timed for the metrics."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from serving.metrics import ModelMeter
from serving.pipelines.engine_port import EnginePort
from serving.request import Event, FinishedEvent, GenerationRequest, TokenEvent


class MeasuredEngine:
    def __init__(self, engine: EnginePort, meter: ModelMeter) -> None:
        self._engine = engine
        self._meter = meter

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        started = previous = time.perf_counter()
        tell = self._meter.on_first_token
        async with aclosing(self._engine.generate(request)) as events:
            async for event in events:
                now = time.perf_counter()
                if isinstance(event, TokenEvent):
                    tell(now - previous)
                    previous, tell = now, self._meter.on_next_token
                elif isinstance(event, FinishedEvent):
                    self._meter.on_finished(event, now - started)
                yield event

    async def run(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        started = time.perf_counter()
        outcomes = await self._engine.run(requests)
        seconds = time.perf_counter() - started
        for events in outcomes:
            if isinstance(events[-1], FinishedEvent):
                self._meter.on_finished(events[-1], seconds)
        return outcomes
