"""Starts the processes of the generator, tells them when to start and stop, and hears how far
they are.
"""

import asyncio
import time
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from loadtest.errors import LoadTestError
from loadtest.generator.messages import Failure, Ready, Start, Stop, Tally
from loadtest.generator.worker import work
from loadtest.plan import Plan
from loadtest.records import GeneratorSample

_HEAD_START_SECONDS = 0.05  # for the word to reach every process before time 0
_JOIN_SECONDS = 5.0


@dataclass(slots=True)
class _Member:
    process: BaseProcess
    connection: Connection
    is_ready: bool = False
    has_left: bool = False
    tally: Tally = field(default_factory=Tally)


class Crew:
    """Holds the processes of one run. `changed` is set whenever one has said something.

    Raises LoadTestError from `check` when one of them could not go on.
    """

    def __init__(self, plan: Plan, path: Path) -> None:
        self._plan = plan
        self._path = path
        self._members: list[_Member] = []
        self._failure: str | None = None
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        context = get_context("spawn")  # a fork would inherit this process's event loop
        loop = asyncio.get_running_loop()
        for number in range(self._plan.processes):
            ours, theirs = context.Pipe()
            arguments = (self._plan, self._path, number, theirs)
            process = context.Process(target=work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            member = _Member(process, ours)
            self._members.append(member)
            loop.add_reader(ours.fileno(), self._listen, member)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.tell(Stop(hangs_up=True))
        for member in self._members:
            self._leave(member)
            await asyncio.to_thread(member.process.join, _JOIN_SECONDS)
            if member.process.is_alive():
                member.process.kill()

    async def are_ready(self) -> None:
        """Wait until all processes are. Raises LoadTestError where one cannot be."""
        while not all(member.is_ready for member in self._members):
            self.check()
            self.changed.clear()
            await self.changed.wait()

    def start(self) -> float:
        """Start all, and return when time 0 is."""
        epoch = time.monotonic() + _HEAD_START_SECONDS
        self.tell(Start(epoch))
        return epoch

    def tell(self, message: Start | Stop) -> None:
        for member in self._members:
            if not member.has_left:
                try:
                    member.connection.send(message)
                except OSError:
                    self._leave(member)

    def check(self) -> None:
        if self._failure is not None:
            raise LoadTestError(f"{self._failure}; what was measured is in {self._path}")

    @property
    def tallies(self) -> list[Tally]:
        return [member.tally for member in self._members]

    @property
    def is_finished(self) -> bool:
        return all(tally.is_finished for tally in self.tallies)

    @property
    def has_sent_all(self) -> bool:
        """Say whether every process has sent all that its schedule holds."""
        return all(tally.last_due is not None for tally in self.tallies)

    @property
    def last_due(self) -> float:
        return max(tally.last_due or 0.0 for tally in self.tallies)

    def _listen(self, member: _Member) -> None:
        try:
            message = member.connection.recv()
        except (EOFError, OSError):
            self._leave(member)
            if not member.tally.is_finished and self._failure is None:
                self._failure = "a process of the generator has died"
        else:
            match message:
                case Ready():
                    member.is_ready = True
                case Tally():
                    member.tally = message
                case Failure(reason):
                    self._failure = reason
        self.changed.set()

    def _leave(self, member: _Member) -> None:
        if not member.has_left:
            member.has_left = True
            asyncio.get_running_loop().remove_reader(member.connection.fileno())
            member.connection.close()


def sample(time_: float, seconds: float, before: list[Tally], now: list[Tally]) -> GeneratorSample:
    """Return how busy each process was in the seconds between two tallies."""
    pairs = zip(before, now, strict=True)
    cpu = (max(0.0, (b.cpu_seconds - a.cpu_seconds) / seconds) for a, b in pairs)
    lag = max(tally.lag_seconds for tally in now)
    return GeneratorSample(
        time=round(time_, 3), cpu=tuple(round(each, 3) for each in cpu), lag_ms=round(1000 * lag, 3)
    )
