"""A real server for tests: `attendant serve` in a process of its own, as users start it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from export.exporting import export_checkpoint
from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
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
    export_checkpoint(checkpoint, bundle, Precision.INT8)
    return bundle


@contextmanager
def served(config: dict[str, Any], folder: Path, **options: Any) -> Iterator[str]:
    """The URL of a server that runs with this configuration; it must also stop cleanly."""
    path = folder / "server.yaml"
    path.write_text(json.dumps({"port": free_port(), **config}, default=str))
    process = attendant("serve", "--config", str(path), **options)
    try:
        yield _url(process)
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # as timeout does, and many who look after servers
        _, rest = process.communicate(timeout=STOP_TIMEOUT_SECONDS)
    assert (process.returncode, rest) == (0, "")


def attendant(
    *arguments: str, environment: Mapping[str, str] = os.environ, **options: Any
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "serving.cli", *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        text=True,
        stderr=subprocess.PIPE,
        process_group=0,
        **options,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def _url(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if line.startswith("Serving on "):
            return line.split()[2]
        lines.append(line)
    raise AssertionError("the server did not start:\n" + "".join(lines))
