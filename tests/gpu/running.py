"""Runs parts, each in a process of its own with a deadline: one that hangs or crashes takes no
other with it.

    python -m tests.gpu.running NAME DEVICE FOLDER      # what a process does: one part
"""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import get_args

from serving.engine.config import Device
from tests.gpu.findings import Notebook, PartResult
from tests.gpu.host import ROOT, load_cuda_libraries
from tests.gpu.parts import PARTS, Part, Place

SHORTEST_SECONDS = 10  # less would be spent on imports


def run_parts(
    names: Iterable[str],
    device: Device,
    folder: Path,
    seconds: float,
    report: Callable[[PartResult], None],
) -> None:
    """Run parts one after the other; `report` is called after each.

    seconds: for all of them. What they do not suffice for is not run, and says so.
    """
    until = time.monotonic() + seconds
    for name in names:
        left = until - time.monotonic()
        notebook = Notebook(folder, name)
        notebook.begin()
        if left < SHORTEST_SECONDS:
            notebook.end(f"not run: no time was left; `--only {name}` runs it", 0)
        else:
            _run_alone(PARTS[name], device, folder, min(left, PARTS[name].seconds), notebook)
        report(notebook.read())


def _run_alone(
    part: Part, device: Device, folder: Path, seconds: float, notebook: Notebook
) -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", __name__, part.name, device, str(folder)]
    log = folder / "parts" / f"{part.name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
        try:
            status = process.wait(timeout=seconds)
            how = "whole" if status == 0 else _failure(status, log)
        except subprocess.TimeoutExpired:
            how = f"cut off after {seconds:.0f} s"
        finally:
            _end_group(process)
    notebook.end(how, time.monotonic() - started)


def _failure(status: int, log: Path) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}; see parts/{log.name}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"failed: {lines[-1].strip() if lines else 'without a word'}"


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """With whatever the part has started and not ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_here(name: str, device: Device, folder: Path) -> None:
    """Run one part in this process."""
    if device == "cuda":
        load_cuda_libraries()
    part, notebook = PARTS[name], Notebook(folder, name)
    find = importlib.import_module(f"tests.gpu.{part.module}").find
    has_aims = device == "cuda" or not part.shape
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch:
        for finding in find(Place(device, Path(scratch), part.shape)):
            notebook.add(finding if has_aims else replace(finding, aim=None))


if __name__ == "__main__":
    _, part_name, device_name, out = sys.argv
    assert device_name in get_args(Device)
    run_here(part_name, device_name, Path(out))  # type: ignore[arg-type]
