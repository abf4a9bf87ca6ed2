"""Runs a plan: tries the server, sends the load, and writes the recording."""

import asyncio
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from tqdm import tqdm

from loadtest.generator.loads import Load, LoadPace, Users, due_times
from loadtest.generator.sending import Sender, open_session
from loadtest.generator.texts import Work
from loadtest.plan import LoadPlan, as_record
from loadtest.records import (
    OK,
    GeneratorSample,
    LoadTestError,
    MeasuringWindow,
    Recording,
    RecordWriter,
    Request,
    RunRecord,
    ServerSample,
    read_recording,
)

_TICK_SECONDS = 0.05
_TICKS_OF_A_SAMPLE = 20
_WRITE_SECONDS = 0.01  # records that end within it are written together: a write takes 40 us
_SCRAPE_SECONDS = 2.0
_METRICS_TIMEOUT_SECONDS = 5.0
_LAST_MOMENT_SECONDS = 1e-3  # the end of a window is not part of it
_BAR = "{desc} {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"


@dataclass(slots=True)
class LoadProgress:
    """The state of a run.

    ended_in_window: requests that ended after the warm-up.
    """

    answers: int = 0
    errors: int = 0
    tokens: int = 0
    ended_in_window: int = 0


View = Callable[
    [float, LoadProgress, int], None
]  # share of the window, progress, requests in flight


def run_plan(plan: LoadPlan, path: Path, view: View = lambda *_: None) -> Recording:
    """Run a plan, write the recording to a new file, and return it. Ctrl-C ends the run early.

    view: is called every second. Raise LoadTestError if there is nothing to ask or no server.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request has a connection
    uvloop.run(_Runner(plan, path, view).run())
    return read_recording(path)


class _Runner:
    def __init__(self, plan: LoadPlan, path: Path, view: View) -> None:
        self._plan = plan
        self._path = path
        self._view = view
        self._work = Work(plan.work)
        self._progress = LoadProgress()
        self._unwritten: list[Request] = []
        self._written_at = 0.0
        self._epoch = 0.0
        self._interrupted = asyncio.Event()
        self._has_enough = asyncio.Event()

    async def run(self) -> None:
        async with open_session(self._plan) as session:
            trial = asyncio.create_task(_try(self._plan, session))
            with _on_interrupt(self._interrupted.set, trial.cancel):
                await trial
                self._path.unlink(missing_ok=True)
                with RecordWriter(self._path) as writer:
                    await self._run(session, writer)

    async def _run(self, session: aiohttp.ClientSession, writer: RecordWriter) -> None:
        writer.write(self._header())
        self._epoch = time.monotonic()
        load = self._load(session, writer)
        sending = asyncio.create_task(load.run())
        samplers = [
            asyncio.create_task(self._scrape_repeatedly(session, writer)),
            asyncio.create_task(self._watch(load, writer)),
        ]
        try:
            await self._wait_for_the_end(load, sending)
            window = self._window(load)
            await self._scrape(session, writer)
            load.stop()
            await _first_of(sending, asyncio.create_task(self._interrupted.wait()))
            load.abort()
            await sending
        finally:
            await _end(samplers)
        self._write(writer)
        writer.write(window)

    def _load(self, session: aiohttp.ClientSession, writer: RecordWriter) -> Load:
        sender = Sender(self._plan, session, self._clock)

        async def send(number: int, intended: float | None) -> Request:
            record = await sender.send(number, self._work.text(number), intended)
            self._note(record, writer)
            return record

        if self._plan.arrivals.is_closed_loop:
            return Users(self._plan.arrivals.users or 0, send, self._clock)
        return LoadPace(due_times(self._plan), send, self._clock)

    async def _wait_for_the_end(self, load: Load, sending: "asyncio.Task[None]") -> None:
        """Return when the window is over by time or by count, or when the run is interrupted."""
        events = [self._interrupted, self._has_enough]
        if self._plan.requests is not None:
            events.append(load.has_sent_all)
        waiting = [asyncio.create_task(event.wait()) for event in events]
        await _first_of(sending, *waiting, timeout=self._plan.end_seconds - self._clock())
        await _end(waiting)

    def _note(self, record: Request, writer: RecordWriter) -> None:
        is_good = record.outcome == OK
        tokens = len(record.tokens) if record.output_tokens is None else record.output_tokens
        self._progress.answers += is_good
        self._progress.errors += not is_good
        self._progress.tokens += tokens
        self._progress.ended_in_window += record.end > self._plan.warm_up_seconds
        is_closed_loop, most = self._plan.arrivals.is_closed_loop, self._plan.requests
        if is_closed_loop and most and self._progress.ended_in_window >= most:
            self._has_enough.set()
        self._unwritten.append(record)
        if record.end - self._written_at >= _WRITE_SECONDS:
            self._write(writer)

    def _write(self, writer: RecordWriter) -> None:
        writer.write(*self._unwritten)
        self._unwritten.clear()
        self._written_at = self._clock()

    async def _scrape_repeatedly(
        self, session: aiohttp.ClientSession, writer: RecordWriter
    ) -> None:
        """Scrape at regular times, the first one when the window opens."""
        await asyncio.sleep(max(0.0, self._plan.warm_up_seconds - self._clock()))
        while True:
            await self._scrape(session, writer)
            await asyncio.sleep(_SCRAPE_SECONDS)

    async def _scrape(self, session: aiohttp.ClientSession, writer: RecordWriter) -> None:
        started_at = self._clock()
        tokens = await generated_tokens(session)
        if tokens is not None:
            time_ = round((started_at + self._clock()) / 2, 3)
            writer.write(ServerSample(time=time_, generated_tokens=tokens))

    async def _watch(self, load: Load, writer: RecordWriter) -> None:
        """Show the progress, and record how busy the load generator is."""
        while True:
            cpu, begun, lag = time.process_time(), self._clock(), 0.0
            for _ in range(_TICKS_OF_A_SAMPLE):
                due = time.monotonic() + _TICK_SECONDS
                await asyncio.sleep(_TICK_SECONDS)
                lag += max(0.0, time.monotonic() - due) / _TICKS_OF_A_SAMPLE
            now = self._clock()
            busy = (time.process_time() - cpu) / (now - begun)
            writer.write(
                GeneratorSample(time=round(now, 3), cpu=round(busy, 3), lag_ms=round(1000 * lag, 3))
            )
            part = (now - self._plan.warm_up_seconds) / self._plan.duration_seconds
            self._view(min(1.0, max(0.0, part)), self._progress, load.in_flight)

    def _window(self, load: Load) -> MeasuringWindow:
        """Return the window, which ends after the last request if their number is limited."""
        closed = min(self._clock(), self._plan.end_seconds)
        if self._plan.requests is not None and load.has_sent_all.is_set():
            closed = min(closed, load.last_due + _LAST_MOMENT_SECONDS)
        return MeasuringWindow(
            opened=min(self._plan.warm_up_seconds, closed), closed=round(closed, 6)
        )

    def _header(self) -> RunRecord:
        plan = self._plan
        return RunRecord(
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=plan.url,
            arrivals=as_record(plan.arrivals),
            work={**as_record(plan.work), "num_texts": self._work.num_texts},
            settings={
                "warm_up": plan.warm_up_seconds,
                "duration": plan.duration_seconds,
                "requests": plan.requests,
                "timeout": plan.timeout_seconds,
            },
            objective=None if plan.objective is None else dict(plan.objective),
        )

    def _clock(self) -> float:
        return time.monotonic() - self._epoch


async def _try(plan: LoadPlan, session: aiohttp.ClientSession) -> None:
    """Raise LoadTestError if the server has no usable answer to a first request."""
    ticks = count()
    sender = Sender(plan, session, lambda: float(next(ticks)))
    record = await sender.send(-1, "Is anybody there?")
    if record.outcome != OK:
        work = plan.work
        name = f"{work.protocol} ({work.model})" if work.model else work.protocol
        problem = f"{plan.url} gave no answer to {name} to start with: {record.outcome}"
        raise LoadTestError(f"{problem}: {record.detail}".rstrip(": "))


async def generated_tokens(session: aiohttp.ClientSession) -> float | None:
    """Return the server's counter of generated tokens; None if it has none."""
    try:
        async with asyncio.timeout(_METRICS_TIMEOUT_SECONDS), session.get("metrics") as response:
            text = await response.text() if response.ok else ""
        samples = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "vllm:generation_tokens_total"
        ]
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return float(sum(samples)) if samples else None


async def _first_of(*tasks: "asyncio.Task[object]", timeout: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def _end(tasks: "Sequence[asyncio.Task[object]]") -> None:
    """Cancel tasks. Raise the error of one that has failed."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


@contextmanager
def _on_interrupt(*callbacks: Callable[[], object]) -> Iterator[None]:
    """Call these on the first Ctrl-C or SIGTERM; for the second one, the former handlers act."""
    loop = asyncio.get_running_loop()
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in former.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def interrupt() -> None:
        for callback in callbacks:
            callback()
        restore()

    for number in former:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        restore()


@contextmanager
def live_line() -> Iterator[View]:
    """Return a view that keeps a line of a terminal up to date, if standard error is one."""
    with tqdm(total=1.0, desc="warm-up", bar_format=_BAR, disable=None, leave=False) as bar:
        latest = LoadProgress()

        def update(part: float, progress: LoadProgress, in_flight: int) -> None:
            parts = [f"{progress.answers - latest.answers} answers/s"]
            if progress.tokens:
                parts.append(f"{progress.tokens - latest.tokens} tokens/s")
            parts += [f"{in_flight} in flight", f"{progress.errors} errors"]
            latest.answers, latest.tokens = progress.answers, progress.tokens
            bar.set_description_str("measuring" if part else "warm-up", refresh=False)
            bar.set_postfix_str(", ".join(parts), refresh=False)
            bar.update(part - bar.n)

        yield update
