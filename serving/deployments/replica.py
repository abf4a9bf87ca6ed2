"""A replica: HTTP on its event loop, each model's engine on its own thread.

HAProxy connects to it directly, so that no other process lies between a request and its engine.
"""

import asyncio
import gc
import os
from collections.abc import Callable, Sequence
from contextlib import aclosing, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from ray import serve

from serving.access.fair_use import FairUse
from serving.access.key_ring import KeyRing, open_key_ring
from serving.api.application import create_app
from serving.api.http.middleware import RequestsInProgress
from serving.api.http.services import Operators, Services
from serving.deployments.console import log_to_console, writer_to
from serving.deployments.forwarding import (
    Applications,
    ServerCatalog,
    answers_of_all,
    running_applications,
    serializable_errors,
)
from serving.deployments.loaded_models import (
    GroupChanges,
    LoadedModels,
    ServerChanges,
    changes_lock,
)
from serving.deployments.metrics import (
    ReplicaExposition,
    add_readings,
    merge_expositions,
    proxy_exposition,
    replica_metrics,
)
from serving.deployments.patches import apply_patches
from serving.deployments.worker_group import ROWS_IN_USE, WAITING_TOKENS
from serving.engine.config import EngineConfig
from serving.engine.fair_share import FairShare
from serving.engine.runtime.planning import CpuBudget
from serving.engine.stats import EngineStats
from serving.observability.engine_metrics import EngineMetrics
from serving.observability.metrics import Metrics, Reading
from serving.observability.tracing import tracing_to_collector
from serving.pipelines.cards import ModelCard
from serving.pipelines.jobs import Job, StreamedJob
from serving.pipelines.loading import LoadedModel, load_model
from serving.pipelines.streams import in_batches
from serving.server_config import WorkerGroup
from serving.storage.opening import STATE_VARIABLE, default_state_folder, open_state
from serving.translation_memory.store import TranslationMemories

_METRICS_TIMEOUT_SECONDS = 2.0


@serve.ingress()
class Replica:
    """One process of a worker group, which serves all its bundles.

    prefix: the beginning of the group's paths.
    deploy: deploys the group as an application of a name and a prefix, once its bundles change.
    """

    def __init__(
        self,
        group: WorkerGroup,
        cpus: int,
        prefix: str,
        deploy: Callable[[WorkerGroup, str, str], None],
    ) -> None:
        log_to_console()
        apply_patches()
        _exclude_modules_from_garbage_collection()
        context = serve.get_replica_context()
        self._metrics = Metrics(context.replica_tag)
        self._kept_metrics = replica_metrics(context.replica_tag, self._metrics.exposition)
        self._engine_metrics = EngineMetrics(self._metrics)
        self._tracing = tracing_to_collector(os.environ, context.replica_tag)
        self._group, self._cpus, self._prefix, self._deploy = group, cpus, prefix, deploy
        self._application = context.app_name
        self._keys = open_key_ring(group.access.keys, os.environ)
        self._share = FairShare(cpus)
        place = os.environ.get(STATE_VARIABLE) or group.state or default_state_folder()
        self._state = open_state(place)
        self._memories = TranslationMemories(self._state)
        self._models = LoadedModels(self._load, self._engine_metrics.remove)
        self._models.start(group.bundles)
        self._fair_use = FairUse(self._state, self._models.engines_by_model)
        self._fair_use_task: asyncio.Task[None] | None = None
        self._applications = Applications(running_applications)
        self._catalog = ServerCatalog(self._models.models, self._application, self._applications)
        self._changes = self._own_changes()
        self._in_progress = RequestsInProgress()
        self._is_ending = False

    def __serve_build_asgi_app__(self) -> Any:
        """Return the ASGI application. Ray Serve calls it after the constructor."""
        app = create_app(
            Services(
                self._catalog,
                self._group.limits,
                self._metrics,
                self._exposition,
                self._is_healthy,
                self._keys,
                self._group.access.metrics_need_key,
                writer_to(self._group.access.log),
                self._operators(),
                self._tracing,
                self._state,
                document_limits=self._group.documents,
                audio_limits=self._group.audio,
                timeout_seconds=self._group.timeout_seconds,
                max_wait_seconds=self._group.max_wait_seconds,
                recent_metrics=self._recent_metrics,
                in_progress=self._in_progress,
            )
        )
        app.openapi()  # before the first request: it takes a second
        return app

    async def reconfigure(self, config: dict[str, Any]) -> None:
        """Serve other bundles. Ray Serve calls it after the constructor, and when they change."""
        bundles = tuple(map(Path, config["bundles"]))
        await self._models.load_bundles(bundles)
        self._group = self._group.model_copy(update={"bundles": bundles})
        self._catalog.replace_models(self._models.models)
        if self._keys is not None and self._fair_use_task is None:
            self._fair_use_task = asyncio.create_task(self._fair_use.run())

    async def check_health(self) -> None:
        """Raise if an engine has died. Ray Serve calls this regularly, and replaces the replica."""
        if not self._is_healthy() and not self._is_ending:
            raise RuntimeError("an engine has died")

    async def __del__(self) -> None:
        """Ray Serve calls and awaits this when the replica has drained."""
        await self.end_requests()
        self._kept_metrics.end()
        if self._fair_use_task is not None:
            self._fair_use_task.cancel()
        await asyncio.to_thread(self._state.close)
        if self._tracing:
            await asyncio.to_thread(self._tracing.close)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load. Ray Serve calls it for groups that scale."""
        return autoscaling_load([engine.stats() for engine in self._models.engines])

    # Called over handles, by other replicas and by `serving.app`.

    async def end_requests(self) -> None:
        """End all requests in progress with an error, and take no more."""
        self._is_ending = True  # Ray Serve must not kill it while it sends these errors
        await asyncio.gather(*(engine.shutdown() for engine in self._models.engines))
        self._in_progress.end()

    async def cards(self) -> list[ModelCard]:
        return self._catalog.local_cards

    async def run(self, model: str, job: Job[Any]) -> Any:
        with serializable_errors():
            served_model = await self._catalog.get_model(model)
            with self._tracing_context(job):
                return await served_model.run(job)

    async def stream(self, model: str, job: StreamedJob[Any, Any]) -> Any:
        with serializable_errors():
            served_model = await self._catalog.get_model(model)
            with self._tracing_context(job):
                async with aclosing(in_batches(served_model.stream(job))) as batches:
                    async for batch in batches:
                        yield batch

    async def own_exposition(self) -> ReplicaExposition:
        return await asyncio.to_thread(self._kept_metrics.write_exposition)

    async def own_recent_metrics(self) -> list[Reading]:
        return self._kept_metrics.recent()

    async def prepare(self, bundle: Path) -> ModelCard:
        with serializable_errors():
            return await self._models.prepare(bundle)

    async def discard(self, bundle: Path) -> None:
        self._models.discard(bundle)

    async def refresh_remote_models(self) -> None:
        self._catalog.refresh_remote_models()

    async def load(self, bundle: Path, replaced: str | None) -> ModelCard:
        """Load a bundle into every replica of this group. replaced: the model that it replaces."""
        with serializable_errors():
            assert self._changes is not None
            before = None if replaced is None else self._models.bundle_of(replaced)
            return await self._changes.load(bundle, before)

    async def unload(self, model: str) -> None:
        """Take a model out of every replica of this group."""
        with serializable_errors():
            assert self._changes is not None
            await self._changes.unload(model, self._models.bundle_of(model))

    def _tracing_context(self, job: Job[Any]) -> Any:
        """Return a context that traces what the engine does for a job of another replica."""
        traceparent = job.decoding.traceparent
        return self._tracing.continue_request(traceparent) if self._tracing else nullcontext()

    def _own_changes(self) -> GroupChanges | None:
        lock = changes_lock()
        if lock is None:
            return None
        return GroupChanges(self._application, lambda: self._group, self._redeploy, lock)

    def _operators(self) -> Operators | None:
        path = self._group.access.operators
        if path is None or self._changes is None:
            return None
        changes = ServerChanges(self._application, self._catalog, self._applications)
        return Operators(KeyRing(path, {}), changes)

    def _redeploy(self, group: WorkerGroup) -> None:
        self._deploy(group, self._application, self._prefix)

    def _load(self, bundle: Path) -> LoadedModel:
        group, cpus = self._group, self._cpus
        return load_model(
            bundle,
            engine_config_of_group(group, cpus),
            cpu_budget_of_group(group, cpus),
            group.limits.max_segments,
            self._engine_metrics.recorder_for,
            self._share.join,
            self._memories,
        )

    def _is_healthy(self) -> bool:
        return self._models.are_alive

    async def _exposition(self) -> bytes:
        """Return the metrics of all replicas, of ended ones, and of HAProxy; if no replica answers,
        of this one.
        """
        answers: list[ReplicaExposition] = await answers_of_all(
            self._applications, _METRICS_TIMEOUT_SECONDS, "own_exposition"
        )
        answers = answers or [await self.own_exposition()]
        return await asyncio.to_thread(self._merge_expositions, answers)

    async def _recent_metrics(self) -> list[Reading]:
        """Return what charts are drawn from, of the last two minutes, of all living replicas."""
        answers: list[list[Reading]] = await answers_of_all(
            self._applications, _METRICS_TIMEOUT_SECONDS, "own_recent_metrics"
        )
        return await asyncio.to_thread(add_readings, chain.from_iterable(answers))

    def _merge_expositions(self, answers: list[ReplicaExposition]) -> bytes:
        living = [answer.text for answer in answers]
        ended = self._kept_metrics.of_ended_replicas({answer.replica for answer in answers})
        return merge_expositions([*living, *ended, proxy_exposition()])


def _exclude_modules_from_garbage_collection() -> None:
    """Exclude what exists now, which is the imported modules, from garbage collection.

    A full collection stops all threads, and the 170,000 objects of the modules take most of its
    time: 0.16 s while a text of 100 kB is read, 0.05 s without them. Models are loaded later, so
    that the collection still frees those that are unloaded.
    """
    gc.collect()
    gc.freeze()
    gc.enable()  # see `worker_imports`


def cpu_budget_of_group(group: WorkerGroup, cpus: int) -> CpuBudget:
    """Return all CPUs of the replica for every model: models take turns on them, step by step."""
    return CpuBudget(cpus, group.engines, group.threads, serves_http=True, can_measure=True)


def engine_config_of_group(group: WorkerGroup, threads: int) -> EngineConfig:
    return EngineConfig(
        slots=group.slots,
        threads=threads,
        device=group.device,
        device_share=(group.gpus_per_replica or 1) / max(1, len(group.bundles)),
        max_waiting=group.max_waiting,
        max_wait_seconds=group.max_wait_seconds,
        timeout_seconds=group.timeout_seconds,
        max_step_tokens=group.max_step_tokens,
        prefix_cache_bytes=group.prefix_cache_mib * 2**20,
        encoder_cache_bytes=group.encoder_cache_mib * 2**20,
    )


def autoscaling_load(models: Sequence[EngineStats]) -> dict[str, float]:
    """Return the load of a replica: of its busiest model, as they share its processors."""
    return {
        ROWS_IN_USE: max((stats.num_rows / stats.num_slots for stats in models), default=0.0),
        WAITING_TOKENS: float(sum(stats.num_waiting_tokens for stats in models)),
    }
