"""Runs engines in processes of their own, pinned to the same cores, each waiting for its turn.

What they are asked and what they answer is in `loadtest/bench/peers/run.py`.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

Order = dict[str, Any]
PEERS_FOLDER = Path(__file__).parent.parent / "peers"


class SkippedPeer(Exception):
    """Says why a peer is left out, mostly which package is not installed where it should run."""


@dataclass(frozen=True)
class Turn:
    """Holds what one turn took and brought.

    first_seconds: until the first token; None where nobody looked.
    outputs: token ids or a text for each input.
    """

    seconds: float
    cpu_seconds: float
    first_seconds: float | None = None
    outputs: list[Any] = field(default_factory=list)


class Player:
    """Runs one engine in a process that ends with this one, and at once where something fails."""

    def __init__(self, name: str, setting: str, command: Sequence[str], cores: set[int]) -> None:
        self.name, self.setting = name, setting
        pipe = subprocess.PIPE
        with pinned(cores):
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, process_group=0
            )

    def version(self) -> str:
        """Wait until it is ready. Raises SkippedPeer where its package is not installed."""
        first = self._answer()
        if "missing" in first:
            self.stop()
            raise SkippedPeer(first["missing"])
        version: str = first["version"]
        return version

    def play(self, order: Order) -> Turn:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            print(json.dumps(order), file=self._process.stdin, flush=True)
        return Turn(**self._answer())

    def stop(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._process.kill()
        self.stop()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise click.ClickException(f"{self.name} has failed with code {code}, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Have processes that this thread starts meanwhile run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
