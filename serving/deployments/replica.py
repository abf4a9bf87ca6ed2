"""One process of a worker group: HTTP on its event loop, each model's engine on its own thread.

The replica is the ingress itself, so a request reaches its engine without another hop.
"""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

from ray import serve

from serving.api.app import create_app
from serving.api.services import Services
from serving.bundle.opening import Bundle, open_bundle
from serving.config import WorkerGroup
from serving.deployments.exposition import merged
from serving.deployments.forwarding import WideCatalog, all_expositions
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.turns import FairShare
from serving.engine_metrics import EngineMetrics, MeasuredEngine
from serving.metrics import Metrics
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model, build_pipeline
from serving.pipelines.completion.job import CompletionJob
from serving.pipelines.merging import in_batches
from serving.pipelines.translation.job import PairScore, ScoreJob, Translation, TranslationJob
from serving.pipelines.translation.tokenizer_pair import TokenizerPair

_METRICS_TIMEOUT_SECONDS = 2.0
# Between two graph runs the engine's thread waits at most this long for a busy event loop. With
# Python's own 5 ms, 32 users on 2 cores get a fifth fewer tokens per second.
_SWITCH_INTERVAL_SECONDS = 0.0002


@serve.ingress()
class Replica:
    """All bundles of a group, loaded and served."""

    def __init__(self, group: WorkerGroup, threads: int, engines_at_once: int) -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        context = serve.get_replica_context()
        self._metrics = Metrics(context.replica_tag)
        self._engine_metrics = EngineMetrics(self._metrics)
        self._limits = group.limits
        self._engines: list[AsyncEngine] = []
        self._share = FairShare(engines_at_once) if len(group.bundles) > engines_at_once else None
        config = engine_config(group, threads)
        models = [self._load(open_bundle(path), config) for path in group.bundles]
        self._catalog = WideCatalog(models, context.app_name)

    def __serve_build_asgi_app__(self) -> Any:
        """Ray Serve asks for the application once the constructor has run."""
        return create_app(
            Services(self._catalog, self._limits, self._metrics, self._exposition, self._is_healthy)
        )

    async def check_health(self) -> None:
        """Ray Serve asks now and then, and replaces a replica that raises."""
        if not self._is_healthy():
            raise RuntimeError("an engine has died")

    async def __del__(self) -> None:
        """Ray Serve waits for this when the replica has drained."""
        await asyncio.gather(*(engine.shutdown() for engine in self._engines))

    # Called by other replicas, over handles.

    async def cards(self) -> list[ModelCard]:
        return self._catalog.own_cards

    async def translate(self, model: str, job: TranslationJob) -> Translation:
        translator = await self._catalog.translator(model, job.source, job.target)
        return await translator.translate(job)

    async def score(self, model: str, job: ScoreJob) -> tuple[PairScore, ...]:
        translator = await self._catalog.translator(model, job.source, job.target)
        return await translator.score(job)

    async def stream(self, model: str, job: CompletionJob) -> Any:
        generator = await self._catalog.generator(model)
        async with aclosing(in_batches(generator.stream(job))) as batches:
            async for batch in batches:
                yield batch

    async def own_exposition(self) -> bytes:
        return self._metrics.exposition()

    def _load(self, bundle: Bundle, config: EngineConfig) -> Model:
        meter = self._engine_metrics.of(bundle.manifest.name)
        tokenizers = TokenizerPair.load(bundle)
        engine = Engine(bundle, config, excluded_ids=tokenizers.target.textless_ids)
        meter.on_stats(engine.stats())
        bridge = AsyncEngine(engine, meter, self._share.join() if self._share else None)
        bridge.start()
        self._engines.append(bridge)
        return build_pipeline(bundle, tokenizers, MeasuredEngine(bridge, meter), self._limits)

    def _is_healthy(self) -> bool:
        return all(engine.is_alive for engine in self._engines)

    async def _exposition(self) -> bytes:
        """The metrics of every replica there is; of this one alone if none answers."""
        expositions = await all_expositions(_METRICS_TIMEOUT_SECONDS)
        return merged(expositions or [self._metrics.exposition()])


def engine_config(group: WorkerGroup, threads: int) -> EngineConfig:
    return EngineConfig(
        slots=group.slots,
        threads=threads,
        device=group.device,
        max_waiting=group.max_waiting,
        max_step_tokens=group.max_step_tokens,
        prefix_cache_bytes=group.prefix_cache_mib * 2**20,
        encoder_cache_bytes=group.encoder_cache_mib * 2**20,
    )
