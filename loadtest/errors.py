"""Errors that end, or prevent, a load test.

    LoadTestError
    ├── PlanError        options that do not fit together
    ├── RecordingError   a broken line of a recording
    ├── ServerError      no usable answer to the first request
    └── SearchError      a search that ended before it had an answer

A request that fails raises nothing: the error is its outcome.
"""


class LoadTestError(Exception):
    pass


class PlanError(LoadTestError):
    pass


class RecordingError(LoadTestError):
    pass


class ServerError(LoadTestError):
    pass


class SearchError(LoadTestError):
    pass
