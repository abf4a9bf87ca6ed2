"""Health, readiness, metrics, and models that operators change."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from serving.access.key_file import hash_key, new_key_entry, write_keys
from serving.access.key_ring import KeyRing
from serving.api.http.services import Operators
from serving.bundle.manifest import Task
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import manifest


async def test_health_and_readiness(world: World) -> None:
    assert (await world.client.get("/health")).json() == {"status": "ok"}
    assert (await world.client.get("/ready")).status_code == 200

    world.readiness[0] = False

    assert (await world.client.get("/health")).status_code == 200
    assert (await world.client.get("/ready")).status_code == 503


async def test_requests_are_counted_by_how_they_ended(world: World) -> None:
    en_fr = {"source": "en", "target": "fr"}
    await world.client.post("/translate", json={"q": "a", **en_fr})
    await world.client.post("/translate", json={"q": "a", "model": "made-up", **en_fr})
    body = {"model": "story", "prompt": "p", "stream": True}
    await world.client.post("/v1/completions", json=body)

    response = await world.client.get("/metrics")

    families = {f.name: f for f in text_string_to_metric_families(response.text)}
    ends = {
        (s.labels["model"], s.labels["protocol"], s.labels["outcome"]): s.value
        for s in families["attendant_requests"].samples
    }
    assert ends == {
        ("shout", "libretranslate", "success"): 1,
        ("", "libretranslate", "refused"): 1,
        ("story", "openai", "success"): 1,
    }


class Loader:
    """Remembers what it was told; of bundles it knows one."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    async def load(self, bundle: Path, group: str | None, replaces: bool) -> ModelCard:
        if bundle != Path("/bundles/new"):
            raise RequestError("bundle", str(bundle), "no such folder")
        self.told.append((bundle, group, replaces))
        return ModelCard.from_manifest(manifest(Task.GENERATE, "new"))

    async def unload(self, model: str) -> None:
        self.told.append((model,))


async def test_operators_load_and_unload_models(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", (new_key_entry(name="me", sha256=hash_key("secret")),))
    loader = Loader()
    operators = Operators(KeyRing(tmp_path / "keys", {}), loader)
    async with made_world(tokenizer, access={"operators": operators}) as world:
        client = world.client
        body = {"bundle": "/bundles/new", "group": "far", "replace": True}
        assert (await client.post("/models", json=body)).status_code == 401
        assert (await client.delete("/models/new")).status_code == 401
        assert loader.told == []
        client.headers["Authorization"] = "Bearer secret"
        loaded = await client.post("/models", json=body)
        assert (loaded.status_code, loaded.json()) == (201, {"model": "new"})
        assert (await client.delete("/models/some/model")).json() == {"model": "some/model"}
        assert loader.told == [(Path("/bundles/new"), "far", True), ("some/model",)]
        for wrong in ({}, {"bundle": 1}, {"bundle": "/x", "file": "y"}, {"bundle": "/none"}):
            refused = await client.post("/models", json=wrong)
            assert refused.status_code == 400 and isinstance(refused.json()["error"], str)
        assert {"/models", "/models/{name}"} <= world.app.openapi()["paths"].keys()


async def test_without_operators_there_is_nothing_to_change_models_by(world: World) -> None:
    assert (await world.client.post("/models", json={"bundle": "/bundles/new"})).status_code == 404
