"""Measure one engine with one setting in a process of its own.

    python process.py WORKER SETTINGS

This script runs in the environment of the engine that is compared, and imports nothing of this
project. WORKER is a class of workers.py, beside this file. The first line of the output is
{"version": ...}, or {"missing": ...} if a package is not installed. Each line of the input is an
order. Its answer is a line with the time that the engine took (wall clock and CPU) and its outputs.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

FirstToken = Callable[[], None]
Run = Callable[[FirstToken], Any]  # the argument is called when the first token is there


class PeerProcess(Protocol):
    version: str

    def prepare(self, order: dict[str, Any]) -> Run:
        """Prepare an order and return the function whose time is measured."""

    def outputs(self, raw: Any) -> list[Any]:
        """Return token ids, a text or a vector for each input, from the result of that function."""


def answer(make_worker: Callable[[], PeerProcess]) -> None:
    """Create the worker and answer orders until the input ends."""
    lines = _open_output()
    try:
        worker = make_worker()
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=lines, flush=True)
        return
    print(json.dumps({"version": worker.version}), file=lines, flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(worker, json.loads(line))), file=lines, flush=True)


def _open_output() -> TextIO:
    """Return standard output, and send to standard error what libraries print."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


def _run(worker: PeerProcess, order: dict[str, Any]) -> dict[str, Any]:
    run = worker.prepare(order)
    first: list[float] = []
    clock, processor = time.perf_counter(), time.process_time()
    raw = run(lambda: first.append(time.perf_counter() - clock))
    seconds = time.perf_counter() - clock
    cpu_seconds = time.process_time() - processor
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "first_seconds": first[0] if first else None,
        "outputs": worker.outputs(raw),
    }


def main(name: str, text: str) -> None:
    settings = with_inputs(json.loads(text))
    answer(lambda: getattr(importlib.import_module("workers"), name)(settings))


def with_inputs(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace the path of the inputs by the inputs: {"texts": lines, "ids": token ids of each}."""
    inputs = json.loads(Path(settings["inputs"]).read_text(encoding="utf-8"))
    return {**settings, "inputs": inputs}


if __name__ == "__main__":
    main(*sys.argv[1:])
