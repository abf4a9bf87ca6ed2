"""The recording of a run, as JSON lines: the plan, every request, and samples taken meanwhile.

All times are seconds since the run began, by the load generator's clock. Every figure of every
report is computed from the recording alone.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

VERSION = 4
OK = "ok"
CANCELLED = "cancelled"  # the load test closed the connection on purpose
CLOSED_LOOP = "closed"  # arrivals that wait for answers


class LoadTestError(Exception):
    """Raised when a load test cannot run or a recording cannot be read.

    A request that fails raises nothing: the error is its outcome.
    """


_checked = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The plan of a run. objective: figures and the bounds that they must keep, if any."""

    started_at: str
    url: str
    arrivals: dict[str, Any]
    work: dict[str, Any]
    settings: dict[str, Any]
    objective: dict[str, float] | None
    version: int = VERSION


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request and its answer.

    intended: when the arrival process wanted it sent; in a closed loop, when it was sent.
    tokens: the times of the streamed chunks that carried text.
    outcome: OK, CANCELLED, or a kind of error. sentences: of the text, if it was to be translated.
    """

    id: int
    intended: float
    sent: float
    tokens: tuple[float, ...]
    end: float
    outcome: str
    status: int | None
    detail: str
    sentences: int
    output_tokens: int | None


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """The number of tokens that the server says it has generated until a time."""

    time: float
    generated_tokens: float


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSample:
    """How busy the load generator was: the share of one core, and the delay of its event loop."""

    time: float
    cpu: float
    lag_ms: float


@_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringWindow:
    """When the measured part of a run began and ended."""

    opened: float
    closed: float


Record = RunRecord | Request | ServerSample | GeneratorSample | MeasuringWindow
_TYPES: dict[str, type[Record]] = {
    "run": RunRecord,
    "request": Request,
    "server": ServerSample,
    "generator": GeneratorSample,
    "window": MeasuringWindow,
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}
_FIELDS = {type_: [field.name for field in fields(type_)] for type_ in _NAMES}


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run. A run that was killed has no closing window: then `is_complete` is false and the
    window ends with the last record.
    """

    run: RunRecord
    requests: list[Request]
    server: list[ServerSample]
    generator: list[GeneratorSample]
    window: MeasuringWindow
    is_complete: bool = True

    @property
    def is_closed_loop(self) -> bool:
        return self.run.arrivals["kind"] == CLOSED_LOOP

    @property
    def seconds(self) -> float:
        return self.window.closed - self.window.opened

    def requests_in_window(self) -> list[Request]:
        """Return the requests that latencies count, without warm-up and draining.

        In a closed loop these ended inside the window, so that the load was complete all the time;
        in an open loop they were due inside it, so that requests delayed by a stall count too.
        """
        return self.ended_inside() if self.is_closed_loop else self.due_inside()

    def ended_inside(self) -> list[Request]:
        return [r for r in self.requests if self.window.opened < r.end <= self.window.closed]

    def due_inside(self) -> list[Request]:
        return [r for r in self.requests if self.window.opened <= r.intended < self.window.closed]


class RecordWriter:
    """Appends whole lines to a file: a killed process loses only what it has not yet written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *records: Record) -> None:
        lines = "".join(map(line_of, records)).encode()
        if os.write(self._file, lines) < len(lines):
            raise OSError("the disk of the recording is full")

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def line_of(record: Record) -> str:
    """Return a record as a line of JSON. (`asdict` would copy the time of every token.)"""
    values = {name: getattr(record, name) for name in _FIELDS[type(record)]}
    return json.dumps({"record": _NAMES[type(record)], **values}, ensure_ascii=False) + "\n"


def read_recording(path: Path) -> Recording:
    """Read a recording. Raise LoadTestError for a broken line; only an unfinished last line, which
    a killed process leaves, is ignored.
    """
    records = list(_records(path))
    if not records or not isinstance(records[0], RunRecord):
        raise LoadTestError(f"{path} does not begin with the record of a run")
    windows = [record for record in records if isinstance(record, MeasuringWindow)]
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
                raise LoadTestError(f"{path}, line {number}: {_reason(error)}") from error


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


def _window_of_killed(run: RunRecord, records: list[Record]) -> MeasuringWindow:
    opened = float(run.settings.get("warm_up") or 0.0)
    times = [opened]
    times += [r.time for r in records if isinstance(r, ServerSample | GeneratorSample)]
    times += [r.end for r in records if isinstance(r, Request)]
    return MeasuringWindow(opened=opened, closed=max(times))
