"""Reads a trace of when requests came, to have them come so again.

A trace is a recording of this load test, or JSON lines of {"time": seconds, "text": ...}. Texts may
be missing, in all lines or in none.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from loadtest.errors import RecordingError, TraceError
from loadtest.records import Run, read_recording


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Arrival:
    """Holds when a request is due, in seconds since the trace began, and what it asked."""

    time: Annotated[float, Field(ge=0)]
    text: str | None = None


_ADAPTER = TypeAdapter(Arrival)


def read_trace(path: Path) -> list[Arrival]:
    """Read a trace; its first request is due at 0. Raises TraceError, naming a broken line."""
    try:
        is_recording = _is_recording(path)
        arrivals = list(_of_recording(path) if is_recording else _of_lines(path))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except RecordingError as error:
        raise TraceError(str(error)) from error
    if not arrivals:
        raise TraceError(f"{path} holds no arrivals")
    if len({arrival.text is None for arrival in arrivals}) > 1:
        raise TraceError(f"{path} has texts for some arrivals only")
    arrivals.sort(key=lambda arrival: arrival.time)
    first = arrivals[0].time
    return [Arrival(arrival.time - first, arrival.text) for arrival in arrivals]


def _is_recording(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return f'"record": "{Run.__name__.lower()}"' in file.readline()


def _of_recording(path: Path) -> Iterator[Arrival]:
    for request in read_recording(path).requests:
        yield Arrival(request.intended, request.text)


def _of_lines(path: Path) -> Iterator[Arrival]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _ADAPTER.validate_python(json.loads(line))
            except ValidationError as error:
                first = error.errors()[0]
                name = ".".join(map(str, first["loc"])) or "the line"
                raise TraceError(f"{path}, line {number}: {name}: {first['msg']}") from error
            except ValueError as error:
                raise TraceError(f"{path}, line {number}: not JSON: {error}") from error
