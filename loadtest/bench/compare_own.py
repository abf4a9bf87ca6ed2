"""Attendant's own turns in a comparison: the bare engine for token ids, pipelines for texts.

    python -m loadtest.bench.compare_own ids|texts|vectors SETTINGS

Settings: bundle, inputs, cores. It answers as the peers do (`loadtest/bench/peers/process.py`). An
order says how many engines of how many threads take it; the best is searched, as for the peers.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadtest.bench.closed_loop import drive_side_by_side
from loadtest.bench.peers.process import FirstToken, PeerProcess, Run, answer, with_inputs
from serving.bundle.manifest import Task
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.planning import CpuBudget, ExecutionPlan
from serving.engine.runtime.session import open_graphs
from serving.engine.scheduling.admission import SharedParts
from serving.engine.worker import SteppedEngine
from serving.pipelines.catalog import Catalog
from serving.pipelines.loading import FILE_SLOTS, ModelParts, load_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import TranslationJob
from serving.requests.parameters import BeamParams
from serving.requests.request import FailedEvent, FinishedEvent, GenerationRequest, TokenEvent
from serving.version import VERSION

Outputs = list[list[int]]
Setting = tuple[int, int]  # engines, and threads of each


class IdsWorker:
    """Runs the bare engine; engines of all sizes share loaded graphs, and keep no caches. Of a file
    the longest sentences go first, as `attendant translate` has it.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = VERSION
        self._inputs: list[list[int]] = settings["inputs"]["ids"]
        self._cores = settings["cores"]
        self._parts = ModelParts.open(Path(settings["bundle"]))
        self._graphs: dict[int, Graphs] = {}
        self._engines: dict[tuple[Setting, int, bool], list[Engine]] = {}

    def prepare(self, order: dict[str, Any]) -> Run:
        setting, batch = (order["engines"], order["threads"]), order["batch"]
        rows_each = -(-batch // order["engines"]) * order["beam"] if batch else FILE_SLOTS
        engines = self._side_by_side(setting, rows_each, share_a_scheduler=batch is None)
        requests = self._requests(order)
        if batch is None:
            requests.sort(key=lambda request: -len(request.source_ids or ()))
        return lambda first_token: drive(engines, requests, batch, first_token)

    def outputs(self, raw: list[Any]) -> list[Any]:
        return raw

    def _side_by_side(self, setting: Setting, slots: int, share_a_scheduler: bool) -> list[Engine]:
        count, threads = setting
        key = (setting, slots, share_a_scheduler)
        if key not in self._engines:
            config, graphs = self._config(slots, threads), self._graphs_of(threads)
            manifest = self._parts.bundle.manifest
            shared = SharedParts.create(manifest, config, graphs) if share_a_scheduler else None
            self._engines[key] = [self._parts.engine(config, graphs, shared) for _ in range(count)]
        return self._engines[key]

    def _graphs_of(self, threads: int) -> Graphs:
        if threads not in self._graphs:
            self._graphs[threads] = open_graphs(self._parts.bundle, self._config(1, threads))
        return self._graphs[threads]

    def _config(self, slots: int, threads: int) -> EngineConfig:
        return EngineConfig(
            slots,
            threads,
            max_waiting=None,
            prefix_cache_bytes=0,
            encoder_cache_bytes=0,
        )

    def _requests(self, order: dict[str, Any]) -> list[GenerationRequest]:
        ids = self._inputs[slice(*order["inputs"])]
        return [self._request(number, token_ids, order) for number, token_ids in enumerate(ids)]

    def _request(self, number: int, ids: list[int], order: dict[str, Any]) -> GenerationRequest:
        fields: dict[str, Any] = {"source_ids": tuple(ids)}
        if self._parts.shortlist is not None:
            fields["shortlist"] = self._parts.shortlist.tokens_for(tuple(ids))
        if self._parts.bundle.manifest.task is Task.GENERATE:
            fields = {"prompt_ids": tuple(ids), "is_whole": True, "ignore_eos": True}
        if order["beam"] > 1:
            fields["beam"] = BeamParams(order["beam"])
        # The first one tells when its first token comes.
        fields |= {"max_new_tokens": order["max_new_tokens"], "streams": number == 0}
        return GenerationRequest(str(number), **fields)


def drive(
    engines: Sequence[Engine],
    requests: Sequence[GenerationRequest],
    num_in_flight: int | None,
    first_token: FirstToken,
) -> Outputs:
    """Keep a number of requests in flight until all have ended; return their tokens in the order of
    the inputs, whose numbers are the request ids. None submits all requests at once.
    """
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    readers = [TokenReader(engine, tokens, first_token) for engine in engines]
    if num_in_flight is None:
        readers[0].submit(requests)
        drive_side_by_side(readers, (), 0)
    else:
        drive_side_by_side(readers, requests, num_in_flight)
    return [tokens[str(number)] for number in range(len(requests))]


class TokenReader:
    """Drives an engine and keeps the tokens."""

    def __init__(
        self, engine: Engine, tokens: dict[str, list[int]], first_token: FirstToken
    ) -> None:
        self._engine, self._tokens, self._first_token = engine, tokens, first_token
        self._has_token = False

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self._engine.submit(*requests)

    def step(self) -> int:
        num_ended = 0
        for event in self._engine.step():
            if isinstance(event, FailedEvent):
                raise event.error
            if isinstance(event, TokenEvent) and not self._has_token:
                self._first_token()
                self._has_token = True
            if isinstance(event, FinishedEvent):
                self._tokens[event.request_id] = event.best.tokens.ids
                num_ended += 1
        return num_ended


class TextsWorker:
    """Translates texts with all that stands between text and text, and no server."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = VERSION
        self._texts: list[str] = settings["inputs"]["texts"]
        self._bundle, self._cores = Path(settings["bundle"]), settings["cores"]
        self._runner = asyncio.Runner()
        self._catalogs: dict[Setting, Catalog] = {}

    def prepare(self, order: dict[str, Any]) -> Run:
        catalog = self._catalog((order["engines"], order["threads"]))
        [card] = catalog.local_cards
        source = card.source_languages[0]
        texts = tuple(self._texts[slice(*order["inputs"])])
        job = TranslationJob("", texts, source, card.targets_of(source)[0])
        return lambda _: self._runner.run(_translate(catalog, card.name, job))

    def outputs(self, raw: tuple[str, ...]) -> list[str]:
        return list(raw)

    def _catalog(self, setting: Setting) -> Catalog:
        if setting not in self._catalogs:
            config = EngineConfig(FILE_SLOTS, max_waiting=None, encoder_cache_bytes=0)
            loaded = load_model(self._bundle, config, CpuBudget(self._cores, *setting))
            self._catalogs[setting] = Catalog([loaded.pipeline])
        return self._catalogs[setting]


async def _translate(catalog: Catalog, name: str, job: TranslationJob) -> tuple[str, ...]:
    translator = await find_translator(catalog, name, job.source, job.target)
    translation = await translator.run(job)
    return tuple(translation.texts)


class VectorsWorker:
    """Encodes texts, the longest first, as `attendant embed` does."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = VERSION
        self._inputs: list[list[int]] = settings["inputs"]["ids"]
        self._parts = ModelParts.open(Path(settings["bundle"]))
        self._engines: dict[ExecutionPlan, list[SteppedEngine]] = {}

    def prepare(self, order: dict[str, Any]) -> Run:
        plan = ExecutionPlan(order["engines"], order["threads"])
        if plan not in self._engines:
            self._engines[plan] = self._side_by_side(plan)
        ids = self._inputs[slice(*order["inputs"])]
        requests = [GenerationRequest(str(n), tuple(token_ids)) for n, token_ids in enumerate(ids)]
        requests.sort(key=lambda request: -len(request.source_ids or ()))
        return lambda _: _encode(self._engines[plan], requests)

    def outputs(self, raw: list[Array]) -> list[Any]:
        return [vector.tolist() for vector in raw]

    def _side_by_side(self, plan: ExecutionPlan) -> list[SteppedEngine]:
        config = EngineConfig(FILE_SLOTS, plan.threads, max_waiting=None)
        graphs = open_graphs(self._parts.bundle, config)
        shared = SharedParts.create(self._parts.bundle.manifest, config, graphs)
        return [self._parts.any_engine(config, graphs, shared) for _ in range(plan.engines)]


def _encode(engines: Sequence[SteppedEngine], requests: Sequence[GenerationRequest]) -> list[Array]:
    """Return the vectors in the order of the inputs, which are the requests' ids."""
    vectors: dict[str, Array] = {}
    readers = [VectorReader(engine, vectors) for engine in engines]
    readers[0].submit(requests)
    drive_side_by_side(readers, (), 0)
    return [vectors[str(number)] for number in range(len(requests))]


class VectorReader:
    """Drives an engine and keeps the vectors."""

    def __init__(self, engine: SteppedEngine, vectors: dict[str, Array]) -> None:
        self._engine, self._vectors = engine, vectors

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
            [self._vectors[event.request_id]] = event.encoding.values()
        return len(events)


WORKERS: dict[str, Callable[[dict[str, Any]], PeerProcess]] = {
    "ids": IdsWorker,
    "texts": TextsWorker,
    "vectors": VectorsWorker,
}

if __name__ == "__main__":
    [kind, text] = sys.argv[1:]
    answer(lambda: WORKERS[kind](with_inputs(json.loads(text))))
