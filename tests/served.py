"""A real server for tests: `attendant serve` in a process of its own, as users start it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from tests.cache import export_cached
from tests.tiny import tiny_checkpoint

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "models" / "checkpoints"
STOP_TIMEOUT_SECONDS = 60


def int8_bundle(name: str, architecture: str, folder: Path, **changes: Any) -> Path:
    """The bundle of the shipped checkpoint of that name, or of a tiny random one."""
    if (SHIPPED / name).is_dir():
        checkpoint = load_checkpoint(SHIPPED / name)
    else:
        checkpoint = tiny_checkpoint(architecture, folder / "checkpoints" / name, **changes)
    bundle = folder / "bundles" / name
    export_cached(checkpoint, bundle, Precision.INT8)
    return bundle


@contextmanager
def served(config: dict[str, Any], folder: Path, **options: Any) -> Iterator[str]:
    """The URL of a server that runs with this configuration; it must also stop cleanly."""
    with served_with_console(config, folder, **options) as (url, lines):
        yield url
    assert lines == [], lines


@contextmanager
def served_with_console(
    config: dict[str, Any], folder: Path, pids: list[int] | None = None, **options: Any
) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server, and the lines that it writes once it serves, as they come. pids: gets
    that of its process.
    """
    path = folder / "server.yaml"
    path.write_text(json.dumps({"port": free_port(), **config}, default=str))
    lines: list[str] = []
    with attendant("serve", "--config", str(path), **options) as process:
        url = url_of(process)
        if pids is not None:
            pids.append(process.pid)
        reader = threading.Thread(target=read_lines, args=(process, lines))
        reader.start()
        try:
            yield url, lines
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # as timeout does, and many who look after it
            process.wait(timeout=STOP_TIMEOUT_SECONDS)
            reader.join()
    assert process.returncode == 0


def attendant(
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    python_path: tuple[Path, ...] = (),
    program: str = "serving.cli",
    **options: Any,
) -> "subprocess.Popen[str]":
    """python_path: where its processes look for modules first. program: the module to run."""
    return subprocess.Popen(
        [sys.executable, "-m", program, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": os.pathsep.join(map(str, (*python_path, ROOT)))},
        text=True,
        stderr=subprocess.PIPE,
        process_group=0,
        **options,
    )


def eventually(holds: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def url_of(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if line.startswith("Serving on "):
            return line.split()[2]
        lines.append(line)
    raise AssertionError("the server did not start:\n" + "".join(lines))


def read_lines(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(process.stderr)
