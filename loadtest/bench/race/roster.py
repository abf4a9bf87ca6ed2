"""Lists who can be raced against: each peer is a worker, and the settings that are searched.

All are measured at their best: every setting gets a turn at every workload, and the fastest runs.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.bench.race.players import PEERS_FOLDER, Player
from loadtest.bench.race.workloads import Kind, Workload
from serving.engine.runtime.plan import candidates

FILE_BATCHES = (16, 32, 64, 128)
PADDED_BATCH, PADDED_BATCHES = 32, (8, 16, 32, 64)  # 32 is what Sentence Transformers makes
Order = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """Holds what all engines of a race share.

    interpreter: of the environment that has the peers. inputs: a file, see `peers/run.py`.
    context: positions that a language model needs.
    """

    bundle: Path
    precision: str
    interpreter: str
    inputs: Path
    cores: frozenset[int]
    context: int


@dataclass(frozen=True)
class Peer:
    """Describes an engine of others.

    worker: a module of `loadtest/bench/peers`. kinds: the workloads it takes part in.
    settings: of a process of its own each. orders: ways to ask for a workload, from the plain one.
    """

    worker: str
    kinds: tuple[Kind, ...]
    settings: Callable[[Setup], list[Order]]
    orders: Callable[[Workload, Order], list[Order]] = lambda workload, order: [order]

    def takes(self, workload: Workload) -> bool:
        return workload.kind in self.kinds

    def players(self, name: str, model: Path, setup: Setup) -> list[Player]:
        """Start a process for each setting."""
        script = [setup.interpreter, str(PEERS_FOLDER / "run.py"), self.worker]
        common = {"model": str(model), "inputs": str(setup.inputs), "cores": len(setup.cores)}
        return [
            Player(name, said(each), [*script, json.dumps({**common, **each})], set(setup.cores))
            for each in self.settings(setup)
        ]


def said(setting: Order) -> str:
    """Write a setting for the report."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def _one(setup: Setup) -> list[Order]:
    return [{}]


def ctranslate2_settings(setup: Setup) -> list[Order]:
    """Return one translation on all cores, one on each, and what lies between."""
    kind = {"fp32": "float32", "int8": "int8"}.get(setup.precision, "default")
    cores = len(setup.cores)
    workers = [number for number in range(1, cores + 1) if cores % number == 0]
    return [{"compute_type": kind, "workers": number} for number in workers]


def _ctranslate2_orders(workload: Workload, order: Order) -> list[Order]:
    """Return how large the batches may be that it makes of what it is given: 0 makes one of all."""
    sizes = (0, max(workload.batch // 2, 1)) if workload.batch else FILE_BATCHES
    return [{**order, "max_batch_size": size} for size in dict.fromkeys(sizes)]


def _llama_cpp_settings(setup: Setup) -> list[Order]:
    return [{"context": setup.context}]


def _slimt_orders(workload: Workload, order: Order) -> list[Order]:
    return [{**order, "calls": calls} for calls in ("all", "each")]


def _onnxruntime_settings(setup: Setup) -> list[Order]:
    """Return one session on all cores, one on each, and what lies between."""
    cores = len(setup.cores)
    return [{"sessions": number} for number in range(1, cores + 1) if cores % number == 0]


def _onnxruntime_orders(workload: Workload, order: Order) -> list[Order]:
    sizes = PADDED_BATCHES if workload.is_sorted else (PADDED_BATCH,)
    return [{**order, "max_batch_size": size, "is_sorted": workload.is_sorted} for size in sizes]


PEERS: dict[str, Peer] = {
    "ctranslate2": Peer(
        "ctranslate2_worker",
        (Kind.TRANSLATE, Kind.OPEN_LOOP),
        ctranslate2_settings,
        _ctranslate2_orders,
    ),
    "transformers": Peer("transformers_worker", (Kind.TRANSLATE,), _one),
    "slimt": Peer("slimt_worker", (Kind.TEXTS,), _one, _slimt_orders),
    "llama.cpp": Peer("llama_cpp_worker", (Kind.CONTINUE, Kind.STREAMS), _llama_cpp_settings),
    "onnxruntime-genai": Peer("genai_worker", (Kind.CONTINUE,), _one),
    "onnxruntime": Peer(
        "onnxruntime_worker", (Kind.ENCODE,), _onnxruntime_settings, _onnxruntime_orders
    ),
}


def own_player(kind: str, setup: Setup) -> Player:
    """Start ours. kind: what it takes, see `own.py`."""
    settings = {
        "bundle": str(setup.bundle),
        "inputs": str(setup.inputs),
        "cores": len(setup.cores),
    }
    command = [sys.executable, "-m", "loadtest.bench.race.own", kind, json.dumps(settings)]
    return Player("attendant", "", command, set(setup.cores))


def own_orders(workload: Workload, order: Order, num_cores: int) -> list[Order]:
    """Return the plans that a server measures, those that have a request for each engine."""
    plans = candidates(num_cores)
    return [
        {**order, "engines": plan.engines, "threads": plan.threads}
        for plan in plans
        if workload.batch is None or plan.engines <= workload.batch or len(plans) == 1
    ]
