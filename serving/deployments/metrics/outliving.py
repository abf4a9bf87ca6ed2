"""Keeps the metrics of replicas that have ended, so that counters do not vanish with a process.

Each replica has a file in the server's own folder, which it writes every few seconds and before it
tells its metrics to anyone. So what was seen once is never taken back, whatever ends a replica;
what it counted since then is lost with it. A replica that does not answer counts as ended.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

METRICS_FOLDER = "ATTENDANT_METRICS_FOLDER"
_EVERY_SECONDS = 5.0
_MOST_KEPT = 32  # replicas that end again and again fill neither the disk nor `/metrics`
_RUNNING, _LOST = b"attendant_requests_running", b"attendant_requests_lost"
_START_OF_BLOCK = re.compile(rb"(?m)^(?=# HELP )")
_LASTS = re.compile(rb"(?m)^# TYPE \S+ (counter|histogram)$")


@dataclass(frozen=True)
class Exposed:
    """Holds the metrics of one replica in Prometheus' text format."""

    replica: str
    text: bytes


class Outliving:
    """Tells the metrics of one replica, and those of the others that have ended.

    folder: None, as on a cluster, keeps nothing.
    """

    def __init__(self, folder: Path | None, replica: str, exposition: Callable[[], bytes]) -> None:
        self._folder, self._replica, self._exposition = folder, replica, exposition
        self._lock = threading.Lock()
        self._ends = threading.Event()
        if folder is not None:
            folder.mkdir(exist_ok=True)
            threading.Thread(target=self._keep_up, name="metrics", daemon=True).start()

    def told(self) -> Exposed:
        """Return the metrics as they are now, once they are kept."""
        with self._lock:
            exposed = Exposed(self._replica, self._exposition())
            if self._folder is not None:
                with suppress(OSError):  # a full disk is no reason to tell nothing
                    self._keep(self._folder / _name_of(self._replica), exposed.text)
            return exposed

    def of_the_ended(self, living: Set[str]) -> list[bytes]:
        """Return what those have told that do not answer any more; the oldest are forgotten."""
        if self._folder is None:
            return []
        names = {_name_of(replica) for replica in living}
        ended = [path for path in self._folder.glob("*.prom") if path.name not in names]
        ended.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in ended[_MOST_KEPT:]:
            path.unlink(missing_ok=True)  # several replicas do this
        return [lasting(path.read_bytes()) for path in ended[:_MOST_KEPT]]

    def end(self) -> None:
        """Tell all for the last time."""
        self._ends.set()
        self.told()

    def _keep_up(self) -> None:
        while not self._ends.wait(_EVERY_SECONDS):
            self.told()

    @staticmethod
    def _keep(path: Path, text: bytes) -> None:
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(text)
        os.replace(unfinished, path)


def outliving(replica: str, exposition: Callable[[], bytes]) -> Outliving:
    folder = os.environ.get(METRICS_FOLDER)
    return Outliving(Path(folder) if folder else None, replica, exposition)


def lasting(text: bytes) -> bytes:
    """Return what stays true of a replica that has ended: its counters and histograms, and as lost
    the requests that were running.
    """
    return b"".join(map(_lasting, _START_OF_BLOCK.split(text)))


def _lasting(block: bytes) -> bytes:
    if block.startswith(b"# HELP " + _RUNNING):
        return block.replace(_RUNNING, _LOST)
    return block if _LASTS.search(block) else b""


def _name_of(replica: str) -> str:
    return hashlib.sha256(replica.encode()).hexdigest() + ".prom"
