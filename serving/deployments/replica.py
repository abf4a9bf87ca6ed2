"""Runs one process of a worker group: HTTP on its event loop, each model's engine on its own
thread.

The replica is the ingress itself, so a request reaches its engine without another hop.
"""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ray import serve

from serving.access.key_ring import key_ring
from serving.api.application import create_app
from serving.api.http.services import Services
from serving.deployments.console import log_to_console, writer_to
from serving.deployments.forwarding import (
    Applications,
    WideCatalog,
    all_expositions,
    failing_from_afar,
    running_applications,
)
from serving.deployments.http_1_0 import unframe_streams
from serving.deployments.loopback import stay_on_loopback
from serving.deployments.metrics.exposition import merged
from serving.deployments.metrics.outliving import Exposed, outliving
from serving.deployments.metrics.proxy import proxy_exposition
from serving.deployments.scaling import load_of
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.planning.plan import Allowance
from serving.engine.turns import FairShare
from serving.engine_metrics import EngineMetrics
from serving.metrics import Metrics
from serving.parameters import TokenIds
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model
from serving.pipelines.completion.job import CompletionJob
from serving.pipelines.loading import load_model
from serving.pipelines.merging import in_batches
from serving.pipelines.tokens import TokenizedText, TokenizeJob
from serving.pipelines.translation.job import PairScore, ScoreJob, Translation, TranslationJob
from serving.server_config import WorkerGroup
from serving.storage.database import default_state_dir

_METRICS_TIMEOUT_SECONDS = 2.0


@serve.ingress()
class Replica:
    """Loads all bundles of a group and serves them."""

    def __init__(self, group: WorkerGroup, cpus: int) -> None:
        log_to_console()
        unframe_streams()
        stay_on_loopback()
        context = serve.get_replica_context()
        self._metrics = Metrics(context.replica_tag)
        self._outliving = outliving(context.replica_tag, self._metrics.exposition)
        self._engine_metrics = EngineMetrics(self._metrics)
        self._limits, self._access = group.limits, group.access
        self._document_limits = group.documents
        self._state_dir = group.state_dir or default_state_dir()
        self._keys = key_ring(group.access.keys, os.environ)
        self._engines: list[AsyncEngine] = []
        self._share = FairShare(cpus)
        config, allowance = engine_config(group, cpus), allowance_of(group, cpus)
        models = [self._load(path, config, allowance) for path in group.bundles]
        self._applications = Applications(running_applications)
        self._catalog = WideCatalog(models, context.app_name, self._applications)

    def __serve_build_asgi_app__(self) -> Any:
        """Ray Serve asks for the application once the constructor has run."""
        return create_app(
            Services(
                self._catalog,
                self._limits,
                self._metrics,
                self._exposition,
                self._is_healthy,
                self._keys,
                self._access.metrics_need_key,
                writer_to(self._access.log),
                self._state_dir,
                document_limits=self._document_limits,
            )
        )

    async def check_health(self) -> None:
        """Ray Serve asks now and then, and replaces a replica that raises."""
        if not self._is_healthy():
            raise RuntimeError("an engine has died")

    async def __del__(self) -> None:
        """Ray Serve waits for this when the replica has drained."""
        await self.end_requests()
        self._outliving.end()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Ray Serve asks this of groups that scale."""
        return load_of([engine.stats() for engine in self._engines])

    # Called over handles, by other replicas and by who runs the server.

    async def end_requests(self) -> None:
        """Answer all requests in progress that the server is stopping, and take no more."""
        await asyncio.gather(*(engine.shutdown() for engine in self._engines))

    async def cards(self) -> list[ModelCard]:
        return self._catalog.own_cards

    async def translate(self, model: str, job: TranslationJob) -> Translation:
        with failing_from_afar():
            translator = await self._catalog.translator(model, job.source, job.target)
            return await translator.translate(job)

    async def score(self, model: str, job: ScoreJob) -> tuple[PairScore, ...]:
        with failing_from_afar():
            scorer = await self._catalog.scorer(model, job.source, job.target)
            return await scorer.score(job)

    async def tokenize(self, model: str, job: TokenizeJob) -> TokenizedText:
        with failing_from_afar():
            return await (await self._catalog.named(model)).tokenize(job)

    async def detokenize(self, model: str, token_ids: TokenIds) -> str:
        with failing_from_afar():
            return await (await self._catalog.named(model)).detokenize(token_ids)

    async def stream_translation(self, model: str, job: TranslationJob) -> Any:
        with failing_from_afar():
            translator = await self._catalog.translator(model, job.source, job.target)
            async with aclosing(in_batches(translator.stream(job))) as batches:
                async for batch in batches:
                    yield batch

    async def stream(self, model: str, job: CompletionJob) -> Any:
        with failing_from_afar():
            generator = await self._catalog.generator(model)
            async with aclosing(in_batches(generator.stream(job))) as batches:
                async for batch in batches:
                    yield batch

    async def own_exposition(self) -> Exposed:
        return await asyncio.to_thread(self._outliving.told)

    def _load(self, bundle: Path, config: EngineConfig, allowance: Allowance) -> Model:
        meter_of = self._engine_metrics.meter_of
        max_segments = self._limits.max_segments
        loaded = load_model(bundle, config, allowance, max_segments, meter_of, self._share.join)
        self._engines.append(loaded.engine)
        return loaded.pipeline

    def _is_healthy(self) -> bool:
        return all(engine.is_alive for engine in self._engines)

    async def _exposition(self) -> bytes:
        """Return the metrics of all replicas, of those that have ended, and of HAProxy; of this one
        alone if none answers.
        """
        answers = await all_expositions(self._applications, _METRICS_TIMEOUT_SECONDS)
        answers = answers or [await self.own_exposition()]
        return await asyncio.to_thread(self._merged, answers)

    def _merged(self, answers: list[Exposed]) -> bytes:
        living = [answer.text for answer in answers]
        ended = self._outliving.of_the_ended({answer.replica for answer in answers})
        return merged([*living, *ended, proxy_exposition()])


def allowance_of(group: WorkerGroup, cpus: int) -> Allowance:
    """Let every model plan for all CPUs of its replica: models take turns on them, step by step."""
    return Allowance(cpus, group.engines, group.threads, serves_http=True, measures=True)


def engine_config(group: WorkerGroup, threads: int) -> EngineConfig:
    return EngineConfig(
        slots=group.slots,
        threads=threads,
        device=group.device,
        device_share=(group.gpus_per_replica or 1) / len(group.bundles),
        max_waiting=group.max_waiting,
        max_wait_seconds=group.max_wait_seconds,
        timeout_seconds=group.timeout_seconds,
        max_step_tokens=group.max_step_tokens,
        prefix_cache_bytes=group.prefix_cache_mib * 2**20,
        encoder_cache_bytes=group.encoder_cache_mib * 2**20,
    )
