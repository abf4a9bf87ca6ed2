"""The engines of a comparison: their settings, and the processes that run them.

Every engine runs in a process of its own, pinned to the same cores, and waits while another one is
measured. `loadtest/bench/peers/process.py` defines the messages. Each engine is measured in every
setting, and compared in its best.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from loadtest.bench.compare_workloads import Workload, WorkloadKind
from serving.engine.runtime.planning import candidate_plans

FILE_BATCHES = (16, 32, 64, 128)
PADDED_BATCH, PADDED_BATCHES = 32, (8, 16, 32, 64)  # 32 is the default of Sentence Transformers
Order = dict[str, Any]
PEERS_FOLDER = Path(__file__).parent / "peers"


class SkippedPeer(Exception):
    """Raised for a peer that cannot run, mostly because its package is not installed."""


@dataclass(frozen=True)
class Turn:
    """One measurement of an engine.

    first_seconds: until the first token; None if it was not measured.
    outputs: token ids, a text or a vector for each input.
    """

    seconds: float
    cpu_seconds: float
    first_seconds: float | None = None
    outputs: list[Any] = field(default_factory=list)


class EngineProcess:
    """Runs one engine in a process that ends with this one, and at once after an error."""

    def __init__(self, name: str, setting: str, command: Sequence[str], cores: set[int]) -> None:
        self.name, self.setting = name, setting
        pipe = subprocess.PIPE
        with pin_to_cores(cores):
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, process_group=0
            )

    def version(self) -> str:
        """Wait until the engine is ready. Raise SkippedPeer if its package is not installed."""
        first = self._answer()
        if "missing" in first:
            self.stop()
            raise SkippedPeer(first["missing"])
        version: str = first["version"]
        return version

    def run(self, order: Order) -> Turn:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            print(json.dumps(order), file=self._process.stdin, flush=True)
        return Turn(**self._answer())

    def stop(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._process.kill()
        self.stop()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise click.ClickException(f"{self.name} has failed with code {code}, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def pin_to_cores(cores: set[int]) -> Iterator[None]:
    """Pin the processes that this thread starts meanwhile to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Setup:
    """What the engines of a comparison share.

    interpreter: the Python of the environment in which the peers are installed.
    inputs: a file, see `peers/process.py`.
    context: number of positions that a language model needs.
    """

    bundle: Path
    precision: str
    interpreter: str
    inputs: Path
    cores: frozenset[int]
    context: int

    @property
    def divisors(self) -> list[int]:
        """Return the numbers of workers that share the cores evenly, from 1 to one for each."""
        cores = len(self.cores)
        return [number for number in range(1, cores + 1) if cores % number == 0]


@dataclass(frozen=True)
class Peer:
    """An engine to compare with.

    worker: its class in `peers/workers.py`. kinds: the workloads that it can run.
    settings: those of a process. orders: ways to ask for a workload, made from the plain one.
    """

    worker: str
    kinds: tuple[WorkloadKind, ...]
    settings: Callable[[Setup], list[Order]] = lambda setup: [{}]
    orders: Callable[[Workload, Order], list[Order]] = lambda workload, order: [order]

    def processes(self, name: str, model: Path, setup: Setup) -> list[EngineProcess]:
        """Start a process for each setting."""
        script = [setup.interpreter, str(PEERS_FOLDER / "process.py"), self.worker]
        common = {"model": str(model), "inputs": str(setup.inputs), "cores": len(setup.cores)}
        return [
            EngineProcess(
                name,
                in_words(setting),
                [*script, json.dumps({**common, **setting})],
                set(setup.cores),
            )
            for setting in self.settings(setup)
        ]


def in_words(setting: Order) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def ctranslate2_settings(setup: Setup) -> list[Order]:
    kind = {"fp32": "float32", "int8": "int8"}.get(setup.precision, "default")
    return [{"compute_type": kind, "workers": number} for number in setup.divisors]


def llama_cpp_settings(setup: Setup) -> Order:
    """Return the settings of `peers/llama_cpp_server.py`, but for the number of streams."""
    return {"context": setup.context, "cores": len(setup.cores)}


def _ctranslate2_orders(workload: Workload, order: Order) -> list[Order]:
    """Return settings with different batch sizes; 0 is one batch of everything."""
    sizes = (0, max(workload.batch // 2, 1)) if workload.batch else FILE_BATCHES
    return [{**order, "max_batch_size": size} for size in dict.fromkeys(sizes)]


def _onnxruntime_orders(workload: Workload, order: Order) -> list[Order]:
    sizes = PADDED_BATCHES if workload.is_sorted else (PADDED_BATCH,)
    return [{**order, "max_batch_size": size, "is_sorted": workload.is_sorted} for size in sizes]


PEERS: dict[str, Peer] = {
    "ctranslate2": Peer(
        "CTranslate2",
        (WorkloadKind.TRANSLATE, WorkloadKind.OPEN_LOOP),
        ctranslate2_settings,
        _ctranslate2_orders,
    ),
    "transformers": Peer("Transformers", (WorkloadKind.TRANSLATE,)),
    "slimt": Peer(
        "Slimt",
        (WorkloadKind.TEXTS,),
        orders=lambda workload, order: [{**order, "calls": calls} for calls in ("all", "each")],
    ),
    "llama.cpp": Peer(
        "LlamaCpp",
        (WorkloadKind.CONTINUE, WorkloadKind.STREAMS),
        lambda setup: [llama_cpp_settings(setup)],
    ),
    "onnxruntime-genai": Peer("OnnxRuntimeGenai", (WorkloadKind.CONTINUE,)),
    "onnxruntime": Peer(
        "OnnxRuntime",
        (WorkloadKind.ENCODE,),
        lambda setup: [{"sessions": number} for number in setup.divisors],
        _onnxruntime_orders,
    ),
}


def own_process(kind: str, setup: Setup) -> EngineProcess:
    """Start Attendant. kind: of its inputs, see `compare_own.py`."""
    settings = {
        "bundle": str(setup.bundle),
        "inputs": str(setup.inputs),
        "cores": len(setup.cores),
    }
    command = [sys.executable, "-m", "loadtest.bench.compare_own", kind, json.dumps(settings)]
    return EngineProcess("attendant", "", command, set(setup.cores))


def own_orders(workload: Workload, order: Order, num_cores: int) -> list[Order]:
    """Return the execution plans that a server measures, if they have a request for each engine."""
    plans = candidate_plans(num_cores)
    return [
        {**order, "engines": plan.engines, "threads": plan.threads}
        for plan in plans
        if workload.batch is None or plan.engines <= workload.batch or len(plans) == 1
    ]
