"""Collect Prometheus metrics of all replicas, of replicas that have ended, and of HAProxy.

Each replica writes its metrics to a file in the run folder every few seconds and before each
answer, so that counters do not go back when a process ends. What it counted after the last write is
lost. A replica that does not answer is treated as ended. What the page draws is also kept in memory
for two minutes.
"""

import hashlib
import os
import re
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from serving.observability.metrics import Reading, chart_samples

METRICS_FOLDER = "ATTENDANT_METRICS_FOLDER"
PROXY_METRICS_PORT = "ATTENDANT_PROXY_METRICS_PORT"
_WRITE_SECONDS = 5.0  # what a killed replica counted since the last write is lost
_KEPT_SECONDS = 120.0  # what the charts of the page show
_MAX_ENDED = 32  # replicas that end again and again must fill neither the disk nor `/metrics`
_RUNNING, _LOST = b"attendant_requests_running", b"attendant_requests_lost"
_START_OF_BLOCK = re.compile(rb"(?m)^(?=# HELP )")
_LASTS = re.compile(rb"(?m)^# TYPE \S+ (counter|histogram)$")
_TIMEOUT_SECONDS = 1.0  # a scrape must not wait for a HAProxy that hangs
_PROXY_METRICS = (
    "haproxy_frontend_current_sessions",
    "haproxy_frontend_limit_sessions",
    "haproxy_frontend_connections_total",
    "haproxy_frontend_http_requests_total",
    "haproxy_frontend_http_responses_total",
    "haproxy_frontend_request_errors_total",
    "haproxy_frontend_requests_denied_total",
    "haproxy_backend_current_sessions",
    "haproxy_backend_current_queue",
    "haproxy_backend_max_queue",
    "haproxy_backend_limit_sessions",
    "haproxy_backend_active_servers",
    "haproxy_backend_http_responses_total",
    "haproxy_backend_connection_errors_total",
    "haproxy_backend_response_errors_total",
    "haproxy_backend_retry_warnings_total",
    "haproxy_backend_redispatch_warnings_total",
    "haproxy_backend_client_aborts_total",
    "haproxy_backend_server_aborts_total",
    "haproxy_backend_average_queue_time_seconds",
)
_BLOCK = re.compile(rb"(?m)^# HELP (\S+) [^\n]*\n# TYPE [^\n]*\n(?:[^#][^\n]*\n)*")


@dataclass(frozen=True)
class ReplicaExposition:
    """The metrics of one replica in Prometheus' text format."""

    replica: str
    text: bytes


class ReplicaMetrics:
    """The metrics of one replica, and those of other replicas that have ended.

    folder: where the files are; None, as on a cluster, keeps no files.
    """

    def __init__(self, folder: Path | None, replica: str, exposition: Callable[[], bytes]) -> None:
        self._folder, self._replica, self._exposition = folder, replica, exposition
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._recent: deque[Reading] = deque(maxlen=round(_KEPT_SECONDS / _WRITE_SECONDS) + 1)
        if folder is not None:
            folder.mkdir(exist_ok=True)
        threading.Thread(target=self._read_regularly, name="metrics", daemon=True).start()

    def write_exposition(self) -> ReplicaExposition:
        """Write the metrics to this replica's file, then return them."""
        with self._lock:
            exposition = ReplicaExposition(self._replica, self._exposition())
            if self._folder is not None:
                with suppress(OSError):  # a full disk must not break `/metrics`
                    self._write(self._folder / _file_name(self._replica), exposition.text)
            return exposition

    def of_ended_replicas(self, living: Set[str]) -> list[bytes]:
        """Return the last metrics of replicas that do not answer any more; delete the oldest."""
        if self._folder is None:
            return []
        names = {_file_name(replica) for replica in living}
        ended = [path for path in self._folder.glob("*.prom") if path.name not in names]
        ended.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in ended[_MAX_ENDED:]:
            path.unlink(missing_ok=True)  # several replicas may do this at once
        return [lasting(path.read_bytes()) for path in ended[:_MAX_ENDED]]

    def end(self) -> None:
        """Write the metrics for the last time."""
        self._ends.set()
        self.write_exposition()

    def recent(self) -> list[Reading]:
        """Return what charts are drawn from, every five seconds of the last two minutes."""
        return [*self._recent]

    def _read_regularly(self) -> None:
        """Read at the same seconds of the clock as all other replicas, so that readings add up."""
        seconds = 0.0
        while True:
            # A wait may end a little early, and the clock may be set back: no second comes twice.
            seconds = max(seconds, time.time() // _WRITE_SECONDS * _WRITE_SECONDS) + _WRITE_SECONDS
            if self._ends.wait(max(0.0, seconds - time.time())):
                return
            self._recent.append(
                Reading(seconds, chart_samples(self.write_exposition().text.decode()))
            )

    @staticmethod
    def _write(path: Path, text: bytes) -> None:
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(text)
        os.replace(unfinished, path)


def replica_metrics(replica: str, exposition: Callable[[], bytes]) -> ReplicaMetrics:
    """Return the metrics of a replica, whose folder the environment names."""
    folder = os.environ.get(METRICS_FOLDER)
    return ReplicaMetrics(Path(folder) if folder else None, replica, exposition)


def add_readings(readings: Iterable[Reading]) -> list[Reading]:
    """Return the sums of the readings of several replicas, oldest first."""
    by_time = groupby(sorted(readings), key=lambda reading: reading.seconds)
    return [
        Reading(seconds, chart_samples("".join(reading.text for reading in readings_then)))
        for seconds, readings_then in by_time
    ]


def lasting(text: bytes) -> bytes:
    """Return the metrics that stay true when a replica has ended: counters, histograms, and the
    requests that were running, now as lost ones.
    """
    return b"".join(map(_lasting, _START_OF_BLOCK.split(text)))


def _lasting(block: bytes) -> bytes:
    if block.startswith(b"# HELP " + _RUNNING):
        return block.replace(_RUNNING, _LOST)
    return block if _LASTS.search(block) else b""


def _file_name(replica: str) -> str:
    return hashlib.sha256(replica.encode()).hexdigest() + ".prom"


def merge_expositions(expositions: Sequence[bytes]) -> bytes:
    """Return several expositions as one, with all samples of a metric below one heading, as
    Prometheus requires: the first, where versions describe it differently.
    """
    blocks: dict[bytes, list[bytes]] = {}
    for exposition in expositions:
        for heading, samples in _blocks(exposition):
            name = heading.split(maxsplit=3)[2]
            blocks.setdefault(name, [heading]).extend(samples)
    return b"".join(line for lines in blocks.values() for line in lines)


def _blocks(exposition: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Return each metric's heading (its HELP and TYPE lines) and its samples."""
    blocks: list[tuple[bytes, list[bytes]]] = []
    for line in exposition.splitlines(keepends=True):
        if line.startswith(b"# HELP"):
            blocks.append((line, []))
        elif line.startswith(b"#"):
            heading, samples = blocks[-1]
            blocks[-1] = (heading + line, samples)
        else:
            blocks[-1][1].append(line)
    return blocks


def proxy_exposition() -> bytes:
    """Return HAProxy's metrics; empty if there is no HAProxy here or it does not answer."""
    port = os.environ.get(PROXY_METRICS_PORT)
    if port is None:
        return b""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    url = f"http://127.0.0.1:{port}/metrics?scope=frontend&scope=backend"
    try:
        with closing(opener.open(url, timeout=_TIMEOUT_SECONDS)) as answer:
            return selected_metrics(answer.read())
    except OSError:
        return b""


def selected_metrics(exposition: bytes) -> bytes:
    """Return the useful ones of HAProxy's metrics: connections, queues, and its own answers."""
    blocks = _BLOCK.finditer(exposition)
    return b"".join(block[0] for block in blocks if block[1].decode() in _PROXY_METRICS)
