"""Is one process of the generator: its share of the requests, on one event loop of uvloop.

Each process walks the whole schedule and sends every Nth request of it, so that what is sent when
does not depend on how many processes there are. Records go straight to the file.
"""

import asyncio
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from loadtest.errors import LoadTestError
from loadtest.generator.arrivals import due_times, trace_texts
from loadtest.generator.items import Work
from loadtest.generator.loads import Load, LoadParts, Pace, Users
from loadtest.generator.messages import Failure, Ready, Start, Stop, Tally
from loadtest.generator.sending import Sender, open_session
from loadtest.plan import Plan
from loadtest.records import OK, RecordWriter, Request

TALLY_SECONDS = 0.25
_TICK_SECONDS = 0.05
_WRITE_SECONDS = 0.01  # records that end within it are written at once: a write takes 40 us


def work(plan: Plan, path: Path, number: int, connection: Connection) -> None:
    """Run a share of a plan; the entry point of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader is told, and says when to stop
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each in flight
    try:
        with RecordWriter(path) as writer:
            uvloop.run(Worker(plan, number, connection, writer).run())
    except (LoadTestError, OSError) as error:
        connection.send(Failure(str(error)))


class Worker:
    """Sends a share of a plan's requests and says how far it is."""

    def __init__(
        self, plan: Plan, number: int, connection: Connection, writer: RecordWriter
    ) -> None:
        self._plan = plan
        self._number = number
        self._connection = connection
        self._writer = writer
        self._work = Work(plan.work, trace_texts(plan.arrivals))
        self._tally = Tally()
        self._unwritten: list[Request] = []
        self._written_at = 0.0
        self._epoch = 0.0
        self._started = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with open_session(self._plan.url) as session:
            sender = Sender(self._plan, session, self._clock, self._number)
            load = self._load(sender)
            loop.add_reader(self._connection.fileno(), self._listen, load)
            self._connection.send(Ready())
            await self._started.wait()
            await asyncio.sleep(max(0.0, -self._clock()))
            pulse = asyncio.create_task(self._pulse(load))
            await load.run()
            pulse.cancel()
        self._write(self._clock())
        loop.remove_reader(self._connection.fileno())
        self._say(load, is_finished=True)

    def _load(self, sender: Sender) -> Load:
        plan, parts = self._plan, LoadParts(self._work, sender, self._clock, self._note)
        if plan.arrivals.is_closed_loop:
            users = range(self._number, plan.arrivals.users or 0, plan.processes)
            return Users(users, count(self._number, plan.processes), parts)
        return Pace(self._share(), parts)

    def _share(self) -> Iterator[tuple[int, float]]:
        return islice(enumerate(due_times(self._plan)), self._number, None, self._plan.processes)

    def _listen(self, load: Load) -> None:
        """Do what the leader says; without a leader there is nothing more to do."""
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = Stop(hangs_up=True)
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
        match message:
            case Start(epoch):
                self._epoch = epoch
                self._started.set()
            case Stop(hangs_up):
                self._started.set()
                load.abort() if hangs_up else load.stop()

    def _note(self, record: Request) -> None:
        self._unwritten.append(record)
        if record.end - self._written_at >= _WRITE_SECONDS:
            self._write(record.end)
        is_good = record.outcome == OK or record.is_expected_error
        tokens = len(record.tokens) if record.output_tokens is None else record.output_tokens
        tally = self._tally
        self._tally = replace(
            tally,
            answers=tally.answers + is_good,
            errors=tally.errors + (not is_good),
            tokens=tally.tokens + tokens,
            ended_in_window=tally.ended_in_window + (record.end > self._plan.warm_up_seconds),
        )

    def _write(self, now: float) -> None:
        self._writer.write(*self._unwritten)
        self._unwritten.clear()
        self._written_at = now

    async def _pulse(self, load: Load) -> None:
        """Say how far it is, again and again, and how late the loop wakes up."""
        ticks = round(TALLY_SECONDS / _TICK_SECONDS)
        while True:
            lag = 0.0
            for _ in range(ticks):
                due = time.monotonic() + _TICK_SECONDS
                await asyncio.sleep(_TICK_SECONDS)
                lag += max(0.0, time.monotonic() - due) / ticks
            self._tally = replace(self._tally, lag_seconds=lag)
            self._say(load)

    def _say(self, load: Load, is_finished: bool = False) -> None:
        tally = replace(
            self._tally,
            sent=load.sent,
            in_flight=load.in_flight,
            last_due=load.last_due,
            cpu_seconds=time.process_time(),
            is_finished=is_finished,
        )
        try:
            self._connection.send(tally)
        except OSError:
            load.abort()  # nobody listens any more

    def _clock(self) -> float:
        return time.monotonic() - self._epoch
