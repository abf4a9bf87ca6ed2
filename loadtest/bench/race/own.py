"""Takes Attendant's own turns in a race: the bare engine for token ids, all of it for texts; and
measures the roofline on the same cores.

    python -m loadtest.bench.race.own ids|texts|roofline SETTINGS

Settings: bundle, inputs, cores. It answers as the peers do (`loadtest/bench/peers/run.py`).
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from loadtest.bench.peers.run import FirstToken, Run, Worker, answer, with_inputs
from loadtest.bench.roofline.breakdown import Breakdown, break_down
from loadtest.bench.roofline.costs import cost_of
from loadtest.bench.roofline.peaks import measure_peaks
from serving.bundle.manifest import Task
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.graphs.session import open_graphs
from serving.parameters import BeamParams
from serving.pipelines.loading import ModelParts
from serving.pipelines.offline import opened
from serving.pipelines.translation.job import TranslationJob
from serving.request import FailedEvent, GenerationRequest, TokenEvent, is_final

Outputs = list[list[int]]


class IdsWorker:
    """Runs the bare engine; engines of all sizes share the loaded graphs, and keep no caches."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = version("attendant")
        self._inputs: list[list[int]] = settings["inputs"]["ids"]
        self._threads = settings["cores"]
        self._parts = ModelParts.open(Path(settings["bundle"]))
        self._graphs = open_graphs(self._parts.bundle, self._config(1))
        self._engines: dict[int, Engine] = {}

    def prepare(self, order: dict[str, Any]) -> Run:
        batch = order["batch"]
        engine = self._engine(batch * order["beam"] if batch else EngineConfig().slots)
        ids = self._inputs[slice(*order["inputs"])]
        requests = [self._request(number, each, order) for number, each in enumerate(ids)]
        return lambda first_token: drive(engine, requests, batch or len(ids), first_token)

    def outputs(self, raw: list[Any]) -> list[Any]:
        return raw

    def _engine(self, slots: int) -> Engine:
        if slots not in self._engines:
            self._engines[slots] = self._parts.engine(self._config(slots), self._graphs)
        return self._engines[slots]

    def _config(self, slots: int) -> EngineConfig:
        return EngineConfig(
            slots,
            self._threads,
            max_waiting=None,
            prefix_cache_bytes=0,
            encoder_cache_bytes=0,
        )

    def _request(self, number: int, ids: list[int], order: dict[str, Any]) -> GenerationRequest:
        fields: dict[str, Any] = {"source_ids": tuple(ids)}
        if self._parts.shortlist is not None:
            fields["shortlist"] = self._parts.shortlist.tokens_for(tuple(ids))
        if self._parts.bundle.manifest.task is Task.GENERATE:
            fields = {"prompt_ids": tuple(ids), "is_whole": True, "ignore_eos": True}
        if order["beam"] > 1:
            fields["beam"] = BeamParams(order["beam"])
        return GenerationRequest(str(number), max_new_tokens=order["max_new_tokens"], **fields)


def drive(
    engine: Engine, requests: Sequence[GenerationRequest], batch: int, first_token: FirstToken
) -> Outputs:
    """Keep so many requests in flight until all have ended; return their tokens."""
    found: dict[str, list[int]] = {request.request_id: [] for request in requests}
    waiting = iter(requests)
    _submit(engine, islice(waiting, batch))
    while engine.has_work:
        num_ended = 0
        for event in engine.step():
            if isinstance(event, FailedEvent):
                raise event.error
            if isinstance(event, TokenEvent):
                if not any(found.values()):
                    first_token()
                found[event.request_id].append(event.token_id)
            num_ended += is_final(event)
        _submit(engine, islice(waiting, num_ended))
    return list(found.values())


def _submit(engine: Engine, requests: Iterator[GenerationRequest]) -> None:
    for request in requests:
        engine.submit(request)


class TextsWorker:
    """Translates texts with all that stands between text and text, and no server."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = version("attendant")
        self._texts: list[str] = settings["inputs"]["texts"]
        config = EngineConfig(SLOTS, settings["cores"], max_waiting=None, encoder_cache_bytes=0)
        self._runner = asyncio.Runner()
        self._opened = opened(Path(settings["bundle"]), config)
        self._catalog = self._runner.run(self._opened.__aenter__())

    def prepare(self, order: dict[str, Any]) -> Run:
        [card] = self._catalog.own_cards
        source = card.source_languages[0]
        texts = tuple(self._texts[slice(*order["inputs"])])
        job = TranslationJob("", texts, source, card.targets_of(source)[0])
        return lambda _: self._runner.run(self._translate(card.name, job))

    def outputs(self, raw: tuple[str, ...]) -> list[str]:
        return list(raw)

    async def _translate(self, name: str, job: TranslationJob) -> tuple[str, ...]:
        translator = await self._catalog.translator(name, job.source, job.target)
        translation = await translator.translate(job)
        return tuple(translation.texts)


class RooflineWorker(IdsWorker):
    """Measures the machine's peaks and where the engine's time goes, for some batch sizes."""

    def prepare(self, order: dict[str, Any]) -> Run:
        return lambda _: [self._measure(order)]

    def _measure(self, order: dict[str, Any]) -> dict[str, Any]:
        bundle = self._parts.bundle
        costs = {name: cost_of(bundle.graph_path(name)) for name in bundle.manifest.graphs}
        encode = costs.get("encode")
        return {
            "precision": str(bundle.manifest.precision),
            "peaks": asdict(measure_peaks(self._threads)),
            "step": asdict(costs["step"]),
            "encode": asdict(encode) if encode else None,
            "breakdowns": [asdict(self._break_down(each)) for each in order["batches"]],
        }

    def _break_down(self, order: dict[str, Any]) -> Breakdown:
        ids = self._inputs[slice(*order["inputs"])]
        requests = [self._request(number, each, order) for number, each in enumerate(ids)]
        return break_down(self._parts, self._graphs, self._config(order["batch"]), requests)


SLOTS = 128  # rows of a batch of short sentences
WORKERS: dict[str, Callable[[dict[str, Any]], Worker]] = {
    "ids": IdsWorker,
    "texts": TextsWorker,
    "roofline": RooflineWorker,
}

if __name__ == "__main__":
    [kind, text] = sys.argv[1:]
    answer(lambda: WORKERS[kind](with_inputs(json.loads(text))))
