"""Takes our turns where the vectors of texts are wanted: the bare engine, for a file at once."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loadtest.bench.closed_loop import drive_side_by_side
from loadtest.bench.peers.run import Run
from serving.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.runtime.plan import Plan
from serving.engine.runtime.session import open_graphs
from serving.engine.scheduling.admission import SharedParts
from serving.engine.worker import Steps
from serving.pipelines.loading import FILE_SLOTS, ModelParts
from serving.request import FailedEvent, FinishedEvent, GenerationRequest


class VectorsWorker:
    """Gives texts their vectors; the longest go first, as `attendant embed` has it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = version("attendant")
        self._inputs: list[list[int]] = settings["inputs"]["ids"]
        self._parts = ModelParts.open(Path(settings["bundle"]))
        self._engines: dict[Plan, list[Steps]] = {}

    def prepare(self, order: dict[str, Any]) -> Run:
        plan = Plan(order["engines"], order["threads"])
        if plan not in self._engines:
            self._engines[plan] = self._side_by_side(plan)
        ids = self._inputs[slice(*order["inputs"])]
        requests = [GenerationRequest(str(n), tuple(each)) for n, each in enumerate(ids)]
        requests.sort(key=lambda request: -len(request.source_ids or ()))
        return lambda _: _encode(self._engines[plan], requests)

    def outputs(self, raw: list[Array]) -> list[Any]:
        return [vector.tolist() for vector in raw]

    def _side_by_side(self, plan: Plan) -> list[Steps]:
        config = EngineConfig(FILE_SLOTS, plan.threads, max_waiting=None)
        graphs = open_graphs(self._parts.bundle, config)
        shared = SharedParts.of(self._parts.bundle.manifest, config, graphs)
        return [self._parts.any_engine(config, graphs, shared) for _ in range(plan.engines)]


def _encode(engines: Sequence[Steps], requests: Sequence[GenerationRequest]) -> list[Array]:
    """Return the vectors in the order of the inputs, which are the requests' ids."""
    found: dict[str, Array] = {}
    readers = [VectorReader(engine, found) for engine in engines]
    readers[0].submit(requests)
    drive_side_by_side(readers, (), 0)
    return [found[str(number)] for number in range(len(requests))]


class VectorReader:
    """Drives an engine and keeps the vectors."""

    def __init__(self, engine: Steps, found: dict[str, Array]) -> None:
        self._engine, self._found = engine, found

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self._engine.submit(*requests)

    def step(self) -> int:
        events = self._engine.step()
        for event in events:
            if isinstance(event, FailedEvent):
                raise event.error
            assert isinstance(event, FinishedEvent) and event.encoding is not None
            self._found[event.request_id] = event.encoding
        return len(events)
