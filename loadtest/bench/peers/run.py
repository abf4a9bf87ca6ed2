"""Takes an engine's turns in a race: one process, one engine, one setting, a line of JSON for each.

    python run.py WORKER SETTINGS

It runs in the environment of the engine that is raced against, and imports nothing of ours. WORKER
is a module beside this file with a class `Worker`: made from the settings, it prepares an order and
says what came out. The first line answered is {"version": ...}, or {"missing": ...} where a package
is not installed. Then each line that is read is an order, answered by the seconds it took, on the
clock and of the processor, and by its outputs; only the engine's own work is timed.
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
Run = Callable[[FirstToken], Any]  # called with what is to be called when the first token is there


class Worker(Protocol):
    version: str

    def prepare(self, order: dict[str, Any]) -> Run:
        """Get ready; the call that is returned is timed."""

    def outputs(self, raw: Any) -> list[Any]:
        """Turn what that call returned into token ids or texts, one item for each input."""


def answer(make_worker: Callable[[], Worker]) -> None:
    """Make the worker and take its turns until the input ends."""
    lines = _own_output()
    try:
        worker = make_worker()
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=lines, flush=True)
        return
    print(json.dumps({"version": worker.version}), file=lines, flush=True)
    for line in sys.stdin:
        print(json.dumps(_turn(worker, json.loads(line))), file=lines, flush=True)


def _own_output() -> TextIO:
    """Keep standard output for the answers: what libraries print goes to standard error."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


def _turn(worker: Worker, order: dict[str, Any]) -> dict[str, Any]:
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
    """Take the turns of the worker of that name."""
    settings = with_inputs(json.loads(text))
    answer(lambda: importlib.import_module(name).Worker(settings))


def with_inputs(settings: dict[str, Any]) -> dict[str, Any]:
    """Read what all engines are given: {"texts": lines, "ids": token ids of each}."""
    inputs = json.loads(Path(settings["inputs"]).read_text(encoding="utf-8"))
    return {**settings, "inputs": inputs}


if __name__ == "__main__":
    main(*sys.argv[1:])
