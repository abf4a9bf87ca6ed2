"""Models of a replica that come and go: who has one already is answered by it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.deployments.loaded_models import LoadedModels, check_with_bundle
from serving.engine.config import EngineConfig
from serving.errors import BundleError, ModelNotFound, RequestError
from serving.pipelines.catalog import Translator
from serving.pipelines.loading import LoadedModel, load_model
from serving.pipelines.translation.job import TranslationJob
from serving.server_config import WorkerGroup
from tests.served import eventually
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [
        tiny_bundle(name, tmp_path_factory.mktemp(name), Precision.INT8)
        for name in ("bahdanau", "transformer")
    ]


class World:
    def __init__(self) -> None:
        self.loads: list[Path] = []
        self.forgotten: list[str] = []
        self.models = LoadedModels(self.load, self.forgotten.append)

    def load(self, bundle: Path) -> LoadedModel:
        self.loads.append(bundle)
        return load_model(bundle, EngineConfig(slots=2, threads=1))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for engine in made.models.engines:
        engine.close()


async def translated(model: Any) -> str:
    assert model.card.task == "translate"
    translator: Translator = model
    translation = await translator.run(TranslationJob("r", ("a dog",), "en", "fr"))
    return translation.texts[0]


async def test_a_prepared_bundle_is_served_once_it_is_said(
    world: World, bundles: list[Path]
) -> None:
    first, second = bundles
    world.models.start([first])
    card = await world.models.prepare(second)
    assert [model.card.name for model in world.models.models] == ["bahdanau"]
    await world.models.load_bundles([first, second])
    assert world.models.models[1].card is card
    assert world.models.bundle_of("transformer") == second
    await world.models.prepare(second)
    assert world.loads == [first, second]


async def test_a_model_that_is_taken_away_answers_whoever_has_it(
    world: World, bundles: list[Path]
) -> None:
    first, second = bundles
    world.models.start([first, second])
    model, engine = world.models.models[1], world.models.engines[1]
    before = await translated(model)

    await world.models.load_bundles([first])

    with pytest.raises(ModelNotFound):
        world.models.bundle_of("transformer")
    assert engine in world.models.engines
    task = asyncio.create_task(translated(model))
    del model
    assert await task == before
    del task
    assert not engine.is_alive and engine not in world.models.engines
    assert world.forgotten == ["transformer"]
    assert world.models.are_alive


async def test_another_version_takes_the_place_of_a_model(
    world: World, bundles: list[Path], tmp_path: Path
) -> None:
    first = bundles[0]
    newer = tiny_bundle("bahdanau", tmp_path, Precision.FP32)
    world.models.start([first])
    fingerprints = [world.models.models[0].card.fingerprint]
    for bundle in (newer, first):
        await world.models.load_bundles([bundle])
        fingerprints.append(world.models.models[0].card.fingerprint)
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]
    assert await asyncio.to_thread(eventually, lambda: len(world.models.engines) == 1)
    assert world.forgotten == []  # what is told of the model now is of its other version


def test_a_canary_may_have_another_version(bundles: list[Path]) -> None:
    canary = WorkerGroup(name="next", bundles=(bundles[0],), canary_percent=20, device="cpu")
    check_with_bundle(canary, bundles[0])
    with pytest.raises(RequestError, match="no such folder"):
        check_with_bundle(canary.model_copy(update={"bundles": (Path("/none"),)}), Path("/none"))


async def test_what_was_prepared_in_vain_ends(world: World, bundles: list[Path]) -> None:
    world.models.start(bundles[:1])
    await world.models.prepare(bundles[1])
    world.models.discard(bundles[1])
    # The thread that loaded it may refer to it for a moment yet.
    assert await asyncio.to_thread(eventually, lambda: world.forgotten == ["transformer"])
    assert len(world.models.engines) == 1
    world.models.discard(bundles[1])


async def test_a_bundle_that_cannot_be_loaded_changes_nothing(
    world: World, bundles: list[Path], tmp_path: Path
) -> None:
    world.models.start(bundles[:1])
    with pytest.raises(BundleError):
        await world.models.prepare(tmp_path)
    with pytest.raises(BundleError):
        await world.models.load_bundles([*bundles[:1], tmp_path])
    assert [model.card.name for model in world.models.models] == ["bahdanau"]
