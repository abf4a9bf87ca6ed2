"""Keeps a run on disk, as JSON lines: how it was asked for, every request, and what went on beside.

All times are seconds since the run began, on the generator's own clock. The recording is the truth
of a run: every figure of every report is computed from it, so that it can be looked into, replayed,
or summarised in another way, long after the server is gone. What the figures are, it does not know.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from loadtest.errors import RecordingError

VERSION = 2
OK = "ok"
CANCELLED = "cancelled"  # we hung up, on purpose
CLOSED_LOOP = "closed"  # the one kind of arrivals that waits for answers

_checked = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds how a run was asked for. `objective` is what it is judged by, if anything."""

    started_at: str
    url: str
    arrivals: dict[str, Any]
    work: dict[str, Any]
    settings: dict[str, Any]
    objective: dict[str, float] | None
    generator: dict[str, Any]
    version: int = VERSION


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Holds the times of one request and its answer, and what was in them.

    `intended` is when the arrival process wanted it sent; in a closed loop that is when it was
    sent. `tokens` are the times of the streamed chunks that carried text.
    """

    id: int
    worker: int
    user: int | None
    kind: str
    protocol: str
    model: str | None
    intended: float
    sent: float
    first_byte: float | None
    tokens: tuple[float, ...]
    end: float
    outcome: str  # OK, CANCELLED, or the kind of error
    status: int | None
    detail: str
    input_characters: int
    input_words: int
    output_characters: int
    output_words: int
    sentences: int
    output_tokens: int | None
    prompt_tokens: int | None
    is_expected_error: bool
    text: str | None = None  # what was sent, if the recording is to be replayed


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """Holds the counters and histogram buckets of the server's metrics at one time."""

    time: float
    metrics: dict[str, float]


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSample:
    """Holds how busy each process of the generator was (1 is a whole core), and its loops' lag."""

    time: float
    cpu: tuple[float, ...]
    lag_ms: float


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Holds when the measured part of a run began and ended."""

    opened: float
    closed: float


Record = Run | Request | ServerSample | GeneratorSample | Window
_TYPES: dict[str, type[Record]] = {
    "run": Run,
    "request": Request,
    "server": ServerSample,
    "generator": GeneratorSample,
    "window": Window,
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}
_FIELDS = {type_: [field.name for field in fields(type_)] for type_ in _NAMES}


@dataclass(frozen=True, slots=True)
class Recording:
    """Holds a whole run. One that was killed has no closing window: `is_complete` is false then,
    and the window ends with the last record.
    """

    run: Run
    requests: list[Request]
    server: list[ServerSample]
    generator: list[GeneratorSample]
    window: Window
    is_complete: bool = True

    @property
    def is_closed_loop(self) -> bool:
        return self.run.arrivals["kind"] == CLOSED_LOOP

    @property
    def seconds(self) -> float:
        return self.window.closed - self.window.opened


def counted(recording: Recording) -> list[Request]:
    """Return the requests that count: without warm-up and draining.

    In a closed loop they ended inside the window, so that the load was whole all through it; in an
    open one they were due inside it, so that those that a stalled server kept waiting count too.
    """
    opened, closed = recording.window.opened, recording.window.closed
    if recording.is_closed_loop:
        return [r for r in recording.requests if opened < r.end <= closed]
    return [r for r in recording.requests if opened <= r.intended < closed]


class RecordWriter:
    """Appends records to a file, whole lines at a time: several processes may write to one file,
    and a process that is killed loses at most what it has not written yet.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *records: Record) -> None:
        lines = "".join(map(line_of, records)).encode()
        written = os.write(self._file, lines)
        if written < len(lines):
            raise OSError("the disk of the recording is full")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def line_of(record: Record) -> str:
    """Return a record as its line. `asdict` would copy every time of every token."""
    values = {name: getattr(record, name) for name in _FIELDS[type(record)]}
    if isinstance(record, Request) and record.text is None:
        del values["text"]
    return json.dumps({"record": _NAMES[type(record)], **values}, ensure_ascii=False) + "\n"


def read_recording(path: Path) -> Recording:
    """Read a run back. Raises RecordingError for a line that is broken; only the last one may be,
    where the writer was killed at it, and is dropped then.
    """
    records = list(_records(path))
    if not records or not isinstance(records[0], Run):
        raise RecordingError(f"{path} does not begin with the record of a run")
    windows = [record for record in records if isinstance(record, Window)]
    return Recording(
        run=records[0],
        requests=[record for record in records if isinstance(record, Request)],
        server=[record for record in records if isinstance(record, ServerSample)],
        generator=[record for record in records if isinstance(record, GeneratorSample)],
        window=windows[-1] if windows else _window_of_killed(records[0], records),
        is_complete=bool(windows),
    )


def _records(path: Path) -> Iterator[Record]:
    adapters = {name: TypeAdapter[Record](type_) for name, type_ in _TYPES.items()}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _record(line, adapters)
            except ValueError as error:
                if not line.endswith("\n"):
                    return
                raise RecordingError(f"{path}, line {number}: {_reason(error)}") from error


def _record(line: str, adapters: dict[str, TypeAdapter[Record]]) -> Record:
    values = json.loads(line)
    name = values.pop("record", None) if isinstance(values, dict) else None
    if name not in adapters:
        raise ValueError(f"is no record of {', '.join(adapters)}")
    if name == "run" and values.get("version") != VERSION:
        raise ValueError(f"is of version {values.get('version')}; only {VERSION} is read")
    return adapters[name].validate_python(values)


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])


def _window_of_killed(run: Run, records: list[Record]) -> Window:
    opened = float(run.settings.get("warm_up") or 0.0)
    times = [opened]
    times += [r.time for r in records if isinstance(r, ServerSample | GeneratorSample)]
    times += [r.end for r in records if isinstance(r, Request)]
    return Window(opened=opened, closed=max(times))
