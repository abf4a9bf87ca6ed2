"""Holds the models of one replica, which come and go while it serves.

A model that is taken away answers whoever has it already: its engines end once nobody refers to it
any more.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from serving.engine.bridge import AsyncEngine
from serving.errors import ModelNotFound
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model
from serving.pipelines.loading import LoadedModel

Load = Callable[[Path], LoadedModel]


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
