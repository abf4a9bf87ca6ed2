"""Load and unload models of a running server, in every replica of a group.

All replicas first load a bundle beside what they serve. Only if all succeed is it written into the
group's application, and the replicas begin to serve it (`Replica.reconfigure`). So a bundle that
fails in one replica changes nothing, and replicas that start later serve the same bundles.
"""

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ray import serve

from serving.bundle.opening import open_manifest
from serving.deployments.environment import CHANGES_LOCK
from serving.deployments.forwarding import (
    Applications,
    ServerCatalog,
    answer_to,
    ask_all,
    raise_local,
)
from serving.deployments.start_checks import problems_of
from serving.deployments.worker_group import DEPLOYMENT
from serving.engine.bridge import AsyncEngine
from serving.errors import BundleError, EngineStopped, ModelNotFound, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model
from serving.pipelines.loading import LoadedModel
from serving.server_config import ServerConfig, WorkerGroup

Load = Callable[[Path], LoadedModel]
_LOAD_SECONDS = 600.0
_DISCARD_SECONDS = 10.0
_FORGET_SECONDS = 5.0
_REPLACED_SECONDS = 15.0  # in which Serve notices that a replica has died
# What a group has from its server, and what a group that is checked alone cannot be.
_NOT_OF_ONE_GROUP = {"access", "state", "drain_seconds", "canary_percent"}
Result = TypeVar("Result")
# Deploys a group in place of the running one; returns when all replicas have its bundles.
Deploy = Callable[[WorkerGroup], None]


class LoadedModels:
    """The models of one replica, by the folder of their bundles.

    A model that is taken away still answers the requests that have it: its engines end once nobody
    refers to it any more.

    load: opens a bundle and starts its engines. forget: called with the name of an ended model.
    """

    def __init__(self, load: Load, forget: Callable[[str], None]) -> None:
        self._load, self._forget = load, forget
        self._served: dict[Path, LoadedModel] = {}
        self._prepared: dict[Path, LoadedModel] = {}
        self._leaving: set[AsyncEngine] = set()

    @property
    def models(self) -> list[Model]:
        return [model.pipeline for model in self._served.values()]

    @property
    def engines(self) -> list[AsyncEngine]:
        """Return the engines of served models, and of models that still answer requests."""
        return [*(model.engine for model in self._served.values()), *self._leaving]

    def engines_by_model(self) -> dict[str, AsyncEngine]:
        """Return the engines of served models by the names of the models."""
        return {model.pipeline.card.name: model.engine for model in self._served.values()}

    @property
    def are_alive(self) -> bool:
        return all(model.engine.is_alive for model in self._served.values())

    def bundle_of(self, model: str) -> Path:
        """Return the bundle of a model that is served. Raises ModelNotFound."""
        for path, loaded in self._served.items():
            if loaded.pipeline.card.name == model:
                return path
        raise ModelNotFound(model)

    def start(self, bundles: Iterable[Path]) -> None:
        """Load the first models."""
        self._served = {path: self._load(path) for path in bundles}

    async def prepare(self, bundle: Path) -> ModelCard:
        """Load a bundle without serving it yet, and return its card."""
        model = self._served.get(bundle) or self._prepared.get(bundle)
        if model is None:
            model = self._prepared[bundle] = await asyncio.to_thread(self._load, bundle)
        return model.pipeline.card

    def discard(self, bundle: Path) -> None:
        """End a prepared model that is not going to be served."""
        if loaded := self._prepared.pop(bundle, None):
            self._end_when_unused(loaded)

    async def load_bundles(self, bundles: Sequence[Path]) -> None:
        """Serve these bundles and no others."""
        for bundle in bundles:
            await self.prepare(bundle)
        before = self._served
        self._served = {
            bundle: before.get(bundle) or self._prepared.pop(bundle) for bundle in bundles
        }
        for bundle in before.keys() - self._served.keys():
            self._end_when_unused(before[bundle])

    def _end_when_unused(self, loaded: LoadedModel) -> None:
        self._leaving.add(loaded.engine)
        weakref.finalize(loaded.pipeline, self._end, loaded.pipeline.card.name, loaded.engine)

    def _end(self, name: str, engine: AsyncEngine) -> None:
        """Runs on the thread that referred to the model last."""
        engine.close()
        self._leaving.discard(engine)
        has_replacement = any(model.card.name == name for model in self.models)
        if not has_replacement:
            self._forget(name)


def changes_lock() -> Path | None:
    """Return the file whose lock is held during a change; None on a cluster, where models change by
    a new configuration instead.
    """
    name = os.environ.get(CHANGES_LOCK)
    return Path(name) if name else None


@asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    with path.open("a") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield


class GroupChanges:
    """Changes the models of one group, from one of its replicas."""

    def __init__(
        self, application: str, serving: Callable[[], WorkerGroup], deploy: Deploy, lock: Path
    ) -> None:
        """serving: returns the group with its current bundles."""
        self.application = application
        self._serving, self._deploy, self._lock = serving, deploy, lock

    async def load(self, bundle: Path, replaced: Path | None) -> ModelCard:
        """Return once all replicas serve the bundle. Raises RequestError where they cannot.

        replaced: the bundle whose place it takes; None adds one.
        """
        return await _finish_despite_cancellation(self._load(bundle, replaced))

    async def unload(self, model: str, bundle: Path) -> None:
        """Return once no replica takes requests for the model. Raises RequestError."""
        await _finish_despite_cancellation(self._unload(model, bundle))

    async def _load(self, bundle: Path, replaced: Path | None) -> ModelCard:
        async with file_lock(self._lock):
            before = self._serving()
            if bundle in before.bundles:
                message = "is served already; put another version into a folder of its own"
                raise RequestError("bundle", str(bundle), message)
            bundles = [bundle if path == replaced else path for path in before.bundles]
            bundles += [] if bundle in bundles else [bundle]
            group = before.model_copy(update={"bundles": tuple(bundles)})
            await asyncio.to_thread(check_with_bundle, group, bundle)
            card = await self._prepare_everywhere(bundle)
            await asyncio.to_thread(self._deploy, group)
            return card

    async def _unload(self, model: str, bundle: Path) -> None:
        async with file_lock(self._lock):
            before = self._serving()
            bundles = tuple(path for path in before.bundles if path != bundle)
            if not bundles:
                raise RequestError("model", model, "is the last one of its group")
            await asyncio.to_thread(self._deploy, before.model_copy(update={"bundles": bundles}))

    async def _prepare_everywhere(self, bundle: Path) -> ModelCard:
        """Load a bundle in all replicas, or raise the error of one of them."""
        answers = await ask_all(self.application, _LOAD_SECONDS, "prepare", bundle)
        for answer in answers:
            if isinstance(answer, Exception):
                await ask_all(self.application, _DISCARD_SECONDS, "discard", bundle)
                raise_local(answer)
        card: ModelCard = answers[0]
        return card


class ServerChanges:
    """Finds the group of a change, and calls one of its replicas."""

    def __init__(
        self, application: str, catalog: ServerCatalog, applications: Applications
    ) -> None:
        """application: this replica's own, the default of a change that names no group."""
        self._application, self._catalog, self._applications = application, catalog, applications

    async def load(self, bundle: Path, group: str | None, replaces: bool) -> ModelCard:
        if not bundle.is_absolute():
            raise RequestError("bundle", str(bundle), "must be an absolute path")
        name = await self._name_of(bundle)
        serving = await self._catalog.applications_of(name)
        if serving and not replaces:
            raise RequestError("bundle", str(bundle), f"model {name} is served already")
        application = await self._application_of(
            group, serving[0] if serving else self._application
        )
        if serving and application not in serving:
            raise RequestError("group", group, f"model {name} is served by another group")
        replaced = name if serving else None
        card: ModelCard = await self._call(application, "load", bundle, replaced)
        await self._refresh_everywhere()
        return card

    async def unload(self, model: str) -> None:
        await self._catalog.get_model(model)
        [application, *_] = await self._catalog.applications_of(model)
        await self._call(application, "unload", model)
        await self._refresh_everywhere()

    async def _call(self, application: str, method: str, *arguments: Any) -> Any:
        """Call one of a group's replicas, again for some seconds if that one has just died."""
        handle = serve.get_deployment_handle(DEPLOYMENT, application)
        deadline = time.monotonic() + _REPLACED_SECONDS
        while True:
            try:
                return await answer_to(getattr(handle, method).remote(*arguments))
            except EngineStopped:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(1)

    async def _name_of(self, bundle: Path) -> str:
        try:
            return (await asyncio.to_thread(open_manifest, bundle)).name
        except BundleError as error:
            raise RequestError("bundle", str(bundle), "; ".join(error.problems)) from None

    async def _application_of(self, group: str | None, default: str) -> str:
        """Return the application of a group: its name, then this run's id."""
        if group is None:
            return default
        run = self._application.rpartition("-")[2]
        names = [name.removesuffix(f"-{run}") for name in await self._running()]
        if group not in names:
            group_names = ", ".join(sorted(names))
            raise RequestError("group", group, f"no such group here; there are: {group_names}")
        return f"{group}-{run}"

    async def _running(self) -> list[str]:
        """Return the names of all applications. A replica that has just started may have to wait
        for them. Raises EngineStopped.
        """
        deadline = time.monotonic() + _REPLACED_SECONDS
        while not (names := await self._applications.running()):
            if time.monotonic() > deadline:
                raise EngineStopped("the server's worker groups are not known yet")
            await asyncio.sleep(1)
        return names

    async def _refresh_everywhere(self) -> None:
        """Make all replicas ask other groups for their models again."""
        for application in await self._applications.running():
            await ask_all(application, _FORGET_SECONDS, "refresh_remote_models")


def check_with_bundle(group: WorkerGroup, bundle: Path) -> None:
    """Raise RequestError if a group cannot be served after a bundle was added to it."""
    if group.device == "cuda":
        message = "the GPU's memory has been divided among the models that it started with"
        raise RequestError("bundle", str(bundle), message)
    options = {name: getattr(group, name) for name in group.model_fields_set - _NOT_OF_ONE_GROUP}
    if problems := problems_of(ServerConfig(groups=(WorkerGroup(**options),))):
        raise RequestError("bundle", str(bundle), "; ".join(problems))


async def _finish_despite_cancellation(change: Coroutine[Any, Any, Result]) -> Result:
    """Finish a change even if the caller is cancelled."""
    return await asyncio.shield(asyncio.create_task(change))
