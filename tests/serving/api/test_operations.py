"""Health, readiness and metrics."""

from prometheus_client.parser import text_string_to_metric_families

from tests.serving.api.world import World


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
