"""Draws the tree of what can go wrong before, or instead of, a run.

    LoadTestError
    ├── PlanError        what was asked for cannot be run
    ├── TraceError       a line of a trace cannot be read
    ├── RecordingError   a line of a recording cannot be read
    └── ServerError      the server gives no usable answer to start with

What goes wrong with a single request is no exception here: it is that request's outcome.
"""


class LoadTestError(Exception):
    """Says why there is no run."""


class PlanError(LoadTestError):
    """Says which part of what was asked for cannot be run."""


class TraceError(LoadTestError):
    """Says which line of a trace is broken, and why."""


class RecordingError(LoadTestError):
    """Says which line of a recording is broken, and why."""


class ServerError(LoadTestError):
    """Says why the server is of no use to begin with."""
