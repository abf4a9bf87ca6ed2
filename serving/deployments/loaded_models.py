"""Load and unload models of a running server, in every replica of a group.

All replicas load a bundle first, each beside what it serves. Only if all of them can is it written
into the group's application, whose replicas then take it over (`Replica.reconfigure`). So a bundle
that fails anywhere changes nothing, and replicas that start later have what the others have.
"""

import asyncio
import fcntl
import os
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ray import serve

from serving.bundle.opening import open_manifest
from serving.deployments.environment import CHANGES_LOCK
from serving.deployments.forwarding import (
    DEPLOYMENT,
    Applications,
    ServerCatalog,
    answer_to,
    ask_all,
    raise_local,
)
from serving.deployments.start_checks import problems_of
from serving.engine.bridge import AsyncEngine
from serving.errors import BundleError, ModelNotFound, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model
from serving.pipelines.loading import LoadedModel
from serving.server_config import Access, ServerConfig, WorkerGroup

Load = Callable[[Path], LoadedModel]
_LOAD_SECONDS = 600.0
_DISCARD_SECONDS = 10.0
_TELL_SECONDS = 5.0
_OF_THE_SERVER = {"access": Access(), "state_dir": None}  # a group of its own may have none
Result = TypeVar("Result")
# Deploys a group with these bundles in place of the one that runs, and returns when all replicas
# have them.
Deploy = Callable[[WorkerGroup], None]


class LoadedModels:
    """Knows each model by the folder of its bundle.

    load: opens a bundle and starts its engines. forget: called with the name of a model whose
        engines have been told to end.
    """

    def __init__(self, load: Load, forget: Callable[[str], None]) -> None:
        self._load, self._forget = load, forget
        self._served: dict[Path, LoadedModel] = {}
        self._prepared: dict[Path, LoadedModel] = {}
        self._leaving: set[AsyncEngine] = set()

    @property
    def served(self) -> list[Model]:
        return [each.pipeline for each in self._served.values()]

    @property
    def engines(self) -> list[AsyncEngine]:
        """List the engines of models that are served, and of those that still answer."""
        return [*(each.engine for each in self._served.values()), *self._leaving]

    @property
    def are_alive(self) -> bool:
        return all(each.engine.is_alive for each in self._served.values())

    def bundle_of(self, model: str) -> Path:
        """Return the bundle of a model that is served. Raises ModelNotFound."""
        for path, loaded in self._served.items():
            if loaded.pipeline.card.name == model:
                return path
        raise ModelNotFound(model)

    def start(self, bundles: Iterable[Path]) -> None:
        """Load the first ones, while nothing is served yet."""
        self._served = {path: self._load(path) for path in bundles}

    async def prepare(self, bundle: Path) -> ModelCard:
        """Load one beside those that are served; what happens to it is said later."""
        found = self._served.get(bundle) or self._prepared.get(bundle)
        if found is None:
            found = self._prepared[bundle] = await asyncio.to_thread(self._load, bundle)
        return found.pipeline.card

    def discard(self, bundle: Path) -> None:
        """End what was prepared in vain."""
        if loaded := self._prepared.pop(bundle, None):
            self._let_go(loaded)

    async def become(self, bundles: Sequence[Path]) -> None:
        """Serve these bundles from now on, and no others."""
        for bundle in bundles:
            await self.prepare(bundle)
        before = self._served
        self._served = {
            bundle: before.get(bundle) or self._prepared.pop(bundle) for bundle in bundles
        }
        for bundle in before.keys() - self._served.keys():
            self._let_go(before[bundle])

    def _let_go(self, loaded: LoadedModel) -> None:
        self._leaving.add(loaded.engine)
        weakref.finalize(loaded.pipeline, self._end, loaded.pipeline.card.name, loaded.engine)

    def _end(self, name: str, engine: AsyncEngine) -> None:
        """Run on whichever thread referred to the model last."""
        engine.close()
        self._leaving.discard(engine)
        self._forget(name)


def changes_lock() -> Path | None:
    """Return the file whose lock is held during a change; None where there are none, as on a
    cluster, which is given a new configuration instead.
    """
    name = os.environ.get(CHANGES_LOCK)
    return Path(name) if name else None


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    with path.open("a") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield


class GroupChanges:
    """Changes the models of one group, from one of its replicas."""

    def __init__(
        self, application: str, serving: Callable[[], WorkerGroup], deploy: Deploy, lock: Path
    ) -> None:
        """serving: returns the group as this replica serves it now."""
        self.application = application
        self._serving, self._deploy, self._lock = serving, deploy, lock

    async def load(self, bundle: Path) -> ModelCard:
        """Return once all replicas serve the bundle. Raises RequestError where they cannot."""
        return await _to_its_end(self._load(bundle))

    async def unload(self, model: str, bundle: Path) -> None:
        """Return once no replica takes requests for the model. Raises RequestError."""
        await _to_its_end(self._unload(model, bundle))

    async def _load(self, bundle: Path) -> ModelCard:
        async with locked(self._lock):
            before = self._serving()
            group = before.model_copy(update={"bundles": (*before.bundles, bundle)})
            await asyncio.to_thread(_check, group, bundle)
            card = await self._prepared(bundle)
            await asyncio.to_thread(self._deploy, group)
            return card

    async def _unload(self, model: str, bundle: Path) -> None:
        async with locked(self._lock):
            before = self._serving()
            left = tuple(each for each in before.bundles if each != bundle)
            if not left:
                raise RequestError("model", model, "is the last one of its group")
            await asyncio.to_thread(self._deploy, before.model_copy(update={"bundles": left}))

    async def _prepared(self, bundle: Path) -> ModelCard:
        """Have all replicas load a bundle, or none. Raises what one of them has failed with."""
        answers = await ask_all(self.application, _LOAD_SECONDS, "prepare", bundle)
        for answer in answers:
            if isinstance(answer, Exception):
                await ask_all(self.application, _DISCARD_SECONDS, "discard", bundle)
                raise_local(answer)
        card: ModelCard = answers[0]
        return card


class ServerChanges:
    """Finds the group that a change is for, and has one of its replicas make it."""

    def __init__(
        self, application: str, catalog: ServerCatalog, applications: Applications
    ) -> None:
        """application: of the group whose replica this is, which names no other."""
        self._own, self._catalog, self._applications = application, catalog, applications

    async def load(self, bundle: Path, group: str | None) -> ModelCard:
        if not bundle.is_absolute():
            raise RequestError("bundle", str(bundle), "must be an absolute path")
        await self._check_name(bundle)
        application = await self._application_of(group)
        handle = serve.get_deployment_handle(DEPLOYMENT, application)
        card: ModelCard = await answer_to(handle.load.remote(bundle))
        await self._tell_all()
        return card

    async def unload(self, model: str) -> None:
        application = await self._catalog.application_of(model)
        handle = serve.get_deployment_handle(DEPLOYMENT, application)
        await answer_to(handle.unload.remote(model))
        await self._tell_all()

    async def _check_name(self, bundle: Path) -> None:
        try:
            name = (await asyncio.to_thread(open_manifest, bundle)).name
        except BundleError as error:
            raise RequestError("bundle", str(bundle), "; ".join(error.problems)) from None
        if any(model.card.name == name for model in await self._catalog.models()):
            raise RequestError("bundle", str(bundle), f"model {name} is served already")

    async def _application_of(self, group: str | None) -> str:
        """Return the application of a group: those of one run end alike."""
        if group is None:
            return self._own
        run = self._own.rpartition("-")[2]
        names = [name.removesuffix(f"-{run}") for name in await self._applications.running()]
        if group not in names:
            known = ", ".join(sorted(names))
            raise RequestError("group", group, f"no such group here; there are: {known}")
        return f"{group}-{run}"

    async def _tell_all(self) -> None:
        """Have no replica go by what it remembers of other groups."""
        for application in await self._applications.running():
            await ask_all(application, _TELL_SECONDS, "forget_others")


def _check(group: WorkerGroup, bundle: Path) -> None:
    """Find what would keep the group from being served with one more bundle."""
    if group.device == "cuda":
        message = "the GPU's memory has been divided among the models that it started with"
        raise RequestError("bundle", str(bundle), message)
    if problems := problems_of(ServerConfig(groups=(group.model_copy(update=_OF_THE_SERVER),))):
        raise RequestError("bundle", str(bundle), "; ".join(problems))


async def _to_its_end(change: Coroutine[Any, Any, Result]) -> Result:
    """Finish a change whoever asked for it waits or not: half of one helps nobody."""
    return await asyncio.shield(asyncio.create_task(change))
