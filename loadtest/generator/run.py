"""Leads a run from plan to recording: probes the server, starts the processes, opens and closes
the window, reads the server's metrics, and ends in order when it is told to.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import uvloop

from loadtest.generator.arrivals import trace_texts
from loadtest.generator.crew import Crew, sample
from loadtest.generator.items import Work
from loadtest.generator.live import LiveView, NoView
from loadtest.generator.messages import Stop
from loadtest.generator.metrics import probe, scrape
from loadtest.generator.sending import open_session
from loadtest.plan import Plan, as_record
from loadtest.records import Recording, RecordWriter, Run, ServerSample, Window, read_recording

_LOOK_SECONDS = 0.25
_SAMPLE_SECONDS = 1.0
_LAST_MOMENT_SECONDS = 1e-3  # the end of a window is not part of it


def run_plan(plan: Plan, path: Path, view: LiveView | None = None) -> Recording:
    """Run a plan, write the recording to a new file, and return it. Ctrl-C ends the run early.

    Raises LoadTestError where there is nothing to run, or no server to ask.
    """
    uvloop.run(_Leader(plan, path, view or NoView()).run())
    return read_recording(path)


class _Leader:
    def __init__(self, plan: Plan, path: Path, view: LiveView) -> None:
        self._plan = plan
        self._path = path
        self._view = view
        self._num_texts = Work(plan.work, trace_texts(plan.arrivals)).num_texts
        self._epoch = 0.0
        self._was_told_to_end = asyncio.Event()

    async def run(self) -> None:
        async with open_session(self._plan.url) as session:
            probing = asyncio.create_task(probe(self._plan, session))
            with _on_interrupt(self._was_told_to_end.set, probing.cancel):
                await probing
                self._path.unlink(missing_ok=True)
                with RecordWriter(self._path) as writer:
                    await self._lead(session, writer)

    async def _lead(self, session: aiohttp.ClientSession, writer: RecordWriter) -> None:
        async with Crew(self._plan, self._path) as crew:
            await crew.are_ready()
            writer.write(self._header())
            self._epoch = crew.start()
            beside = [
                asyncio.create_task(self._scrape_again_and_again(session, writer)),
                asyncio.create_task(self._watch(crew, writer)),
            ]
            try:
                await self._wait_for_the_end(crew)
                window = self._window(crew)
                await self._scrape(session, writer)
                crew.tell(Stop(hangs_up=self._was_told_to_end.is_set()))
                await self._drain(crew)
            finally:
                await _end(beside)
            writer.write(window)

    async def _wait_for_the_end(self, crew: Crew) -> None:
        """Return when the window is over, by time or by count, or when the run is told to end."""
        while self._clock() < self._plan.end_seconds and not self._was_told_to_end.is_set():
            crew.check()
            if self._has_enough(crew):
                return
            await self._look(crew)

    async def _drain(self, crew: Crew) -> None:
        while not crew.is_finished:
            crew.check()
            if self._was_told_to_end.is_set():
                crew.tell(Stop(hangs_up=True))
            await self._look(crew)

    async def _look(self, crew: Crew) -> None:
        """Wait until a process has said something, or the window is over."""
        rest = self._plan.end_seconds - self._clock()
        crew.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(rest if 0 < rest < _LOOK_SECONDS else _LOOK_SECONDS):
                await crew.changed.wait()

    def _has_enough(self, crew: Crew) -> bool:
        """Say whether the window holds the requests that it is to hold at most."""
        if self._plan.requests is None:
            return False
        if not self._plan.arrivals.is_closed_loop:
            return crew.has_sent_all
        return sum(tally.ended_in_window for tally in crew.tallies) >= self._plan.requests

    async def _scrape_again_and_again(
        self, session: aiohttp.ClientSession, writer: RecordWriter
    ) -> None:
        """Scrape at even times, of which the opening of the window is one."""
        await self._sleep_until(self._plan.warm_up_seconds)
        while True:
            await self._scrape(session, writer)
            await asyncio.sleep(self._plan.scrape_seconds)

    async def _scrape(self, session: aiohttp.ClientSession, writer: RecordWriter) -> None:
        asked = self._clock()
        metrics = await scrape(session)
        if metrics is not None:
            writer.write(ServerSample(time=round((asked + self._clock()) / 2, 3), metrics=metrics))

    async def _watch(self, crew: Crew, writer: RecordWriter) -> None:
        """Show how the run goes, and write down how busy the generator is."""
        before, then = crew.tallies, self._clock()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._clock()
            self._view.update(now, self._part(now), crew.tallies)
            if now - then >= _SAMPLE_SECONDS:
                writer.write(sample(now, now - then, before, crew.tallies))
                before, then = crew.tallies, now

    def _part(self, now: float) -> float:
        part = (now - self._plan.warm_up_seconds) / self._plan.duration_seconds
        return min(1.0, max(0.0, part))

    def _window(self, crew: Crew) -> Window:
        """Return the window, which ends early after the last request that there is to be."""
        closed = min(self._clock(), self._plan.end_seconds)
        if self._plan.requests is not None and crew.has_sent_all:
            closed = min(closed, crew.last_due + _LAST_MOMENT_SECONDS)
        opened = min(self._plan.warm_up_seconds, closed)
        return Window(opened=opened, closed=round(closed, 6))

    def _header(self) -> Run:
        plan = self._plan
        return Run(
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=plan.url,
            arrivals=as_record(plan.arrivals),
            work={**as_record(plan.work), "num_texts": self._num_texts},
            settings={
                "warm_up": plan.warm_up_seconds,
                "duration": plan.duration_seconds,
                "requests": plan.requests,
                "timeout": plan.timeout_seconds,
            },
            objective=None if plan.objective is None else dict(plan.objective),
            generator={
                "processes": plan.processes,
                "ceiling_requests_per_second": plan.ceiling_requests_per_second,
            },
        )

    async def _sleep_until(self, due: float) -> None:
        await asyncio.sleep(max(0.0, due - self._clock()))

    def _clock(self) -> float:
        return time.monotonic() - self._epoch


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks; raises what one of them has failed of before."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


@contextmanager
def _on_interrupt(*told: Callable[[], object]) -> Iterator[None]:
    """Call on Ctrl-C or SIGTERM, once; the second one ends the program as ever."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def tell() -> None:
        for each in told:
            each()
        restore()

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, tell)
    try:
        yield
    finally:
        restore()
