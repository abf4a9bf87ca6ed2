"""Servers that share their state, as on machines of their own: each a process, with its own Ray,
replica, HAProxy and home, stopped and killed alone.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from serving.deployments.process_tree import descendants
from tests.served import ROOT, eventually, free_port, read_lines, url_of

_STOP_SECONDS = 60


class Server:
    """A server that has been started, or not yet, or was killed, always at the same port.

    code: the folder with the package `serving` that it runs.
    console: the lines that it has written since it serves.
    """

    def __init__(
        self, folder: Path, state: str, config: Mapping[str, Any], code: Path = ROOT
    ) -> None:
        self.port, self.code = free_port(), code
        self.console: list[str] = []
        self._home, self._state = folder, state
        folder.mkdir()
        self._config = folder / "server.yaml"
        fields = {"port": self.port, "drain_seconds": 5, **config}
        self._config.write_text(json.dumps(fields, default=str))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        """Begin to start; `wait_until_ready` waits for its end."""
        home = {"XDG_STATE_HOME": str(self._home / "state"), "ATTENDANT_STATE": self._state}
        paths = {"PYTHONPATH": os.pathsep.join(map(str, (self.code, ROOT)))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serving.cli", "serve", "--config", str(self._config)],
            cwd=self.code,
            env={**os.environ, **home, **paths},
            text=True,
            stderr=subprocess.PIPE,
            process_group=0,
        )

    def wait_until_ready(self) -> None:
        url_of(self._process)
        self._reader = threading.Thread(target=read_lines, args=(self._process, self.console))
        self._reader.start()

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def kill(self) -> None:
        """End all its processes at once, as when its machine loses power."""
        pids = [self.pid, *descendants(self.pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._close()
        assert eventually(lambda: not any(map(_is_alive, pids)))

    def stop(self) -> None:
        """Let it drain, as after SIGTERM in a pod."""
        self._process.send_signal(signal.SIGTERM)
        self._close()
        assert self._process.returncode == 0

    def stop_if_running(self) -> None:
        if hasattr(self, "_process") and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._close()

    def has_state_of_its_own(self) -> bool:
        return any((self._home / "state").rglob("*.sqlite3"))

    def _close(self) -> None:
        self._process.wait(_STOP_SECONDS)
        if hasattr(self, "_reader"):
            self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
