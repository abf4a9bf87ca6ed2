"""The security schemes of `/openapi.json`: they are where the server finds keys, and no others."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.api.http.services import Operators
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world

EXPECTED_SCHEMES = {
    ("/v2/", "/v3/"): ["DeepL-Auth-Key"],
    ("/v1/", "/tokenize", "/detokenize", "/score"): ["Bearer"],
    ("/translate", "/detect", "/usage", "/translate_file"): ["Bearer", "api_key"],
}
WITHOUT_KEYS = {
    *("GET /languages", "GET /frontend/settings", "GET /download_file/{name}"),
    *("GET /health", "GET /ready", "GET /metrics", "GET /metrics/recent"),
    *("POST /suggest", "POST /v2/write/rephrase", "POST /v2/write/correct"),
    "POST /v1/quality-evaluations",
    "PUT /v3/translation_memories/files/{file_id}",
    "GET /v3/translation_memories/files/{file_id}",
}


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    write_keys(tmp_path / "keys.json", (KeyEntry(name="alice", sha256=hash_key("secret")),))
    return KeyRing(tmp_path / "keys.json", {})


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def send(
    client: httpx.AsyncClient, method: str, path: str, key: dict[str, Any]
) -> httpx.Response:
    """Send a request without a body, or with an empty form. key: arguments with the key."""
    form: dict[str, Any] = {"files": {"file": b""}} if path == "/translate_file" else {}
    return await client.request(method, re.sub("{.*?}", "none", path), **form, **key)


def key_as(scheme: dict[str, Any], secret: str) -> dict[str, Any]:
    """Return the arguments of a request with a key, as the description of a scheme has it."""
    if scheme["type"] == "http":
        assert scheme["scheme"] == "bearer"
        return {"headers": {"Authorization": f"Bearer {secret}"}}
    if scheme["in"] == "query":
        return {"params": {scheme["name"]: secret}}
    [example] = re.findall("`([^`]* KEY)`", scheme["description"])
    return {"headers": {scheme["name"]: example.replace("KEY", secret)}}


def is_key_refused(response: httpx.Response) -> bool:
    return response.status_code in (401, 403) and "needs a key" in response.text


async def test_a_key_is_demanded_where_the_document_demands_one(
    tokenizer: Tokenizer, ring: KeyRing
) -> None:
    async with made_world(tokenizer, access={"keys": ring}) as world:
        document = (await world.client.get("/openapi.json")).json()
        free = set()
        for method, path, operation in operations(document):
            response = await send(world.client, method, path, {})
            assert is_key_refused(response) == ("security" in operation), (method, path)
            if "security" not in operation:
                free.add(f"{method} {path}")
                continue
            content = operation["responses"][str(response.status_code)]["content"]
            schema = content["application/json"]["schema"] | {"components": document["components"]}
            jsonschema.validate(response.json(), schema)
    assert free == WITHOUT_KEYS


async def test_a_key_is_found_wherever_the_document_has_it(
    tokenizer: Tokenizer, ring: KeyRing
) -> None:
    async with made_world(tokenizer, access={"keys": ring}) as world:
        document = (await world.client.get("/openapi.json")).json()
        schemes, used = document["components"]["securitySchemes"], set()
        for method, path, operation in operations(document):
            for requirement in operation.get("security", ()):
                [name] = requirement
                used.add(name)
                for secret, is_refused in (("secret", False), ("wrong", True)):
                    response = await send(world.client, method, path, key_as(schemes[name], secret))
                    assert is_key_refused(response) == is_refused, (method, path, name, secret)
    assert used == {*schemes} == {"Bearer", "DeepL-Auth-Key", "api_key"}


@pytest.mark.parametrize("has_keys", [True, False])
async def test_each_protocol_has_its_schemes(
    tokenizer: Tokenizer, ring: KeyRing, has_keys: bool
) -> None:
    """Of a server without keys they are optional: its clients can send them to other servers."""
    access = {"keys": ring if has_keys else None, "metrics_need_key": True}
    async with made_world(tokenizer, access=access) as world:
        document = (await world.client.get("/openapi.json")).json()
    optional: list[Any] = [] if has_keys else [{}]
    for paths, names in EXPECTED_SCHEMES.items():
        security = [
            operation["security"]
            for method, path, operation in operations(document)
            if path.startswith(paths) and f"{method} {path}" not in WITHOUT_KEYS
        ]
        assert security
        assert all(item == [*optional, *({name: []} for name in names)] for item in security)
    assert document["paths"]["/metrics"]["get"]["security"] == [*optional, {"Bearer": []}]
    assert ("needs no API key" in document["info"]["description"]) == (not has_keys)


async def test_without_keys_a_key_changes_nothing(tokenizer: Tokenizer) -> None:
    async with made_world(tokenizer, access={"keys": None}) as world:
        for headers in ({}, {"Authorization": "Bearer any"}, {"Authorization": "any"}):
            assert (await world.client.get("/v1/models", headers=headers)).status_code == 200


class _NoLoader:
    async def load(self, bundle: Path, group: str | None, replaces: bool) -> ModelCard:
        raise RequestError("bundle", str(bundle), "no such folder")

    async def unload(self, model: str) -> None:
        raise RequestError("model", model, "is not loaded")


async def test_operators_have_keys_of_their_own(
    tokenizer: Tokenizer, ring: KeyRing, tmp_path: Path
) -> None:
    entry = KeyEntry(name="operator", sha256=hash_key("operator's"))
    write_keys(tmp_path / "operators.json", (entry,))
    operators = Operators(KeyRing(tmp_path / "operators.json", {}), _NoLoader())
    async with made_world(tokenizer, access={"keys": ring, "operators": operators}) as world:
        document = (await world.client.get("/openapi.json")).json()
        scheme = document["components"]["securitySchemes"]["Operator"]
        load, unload = document["paths"]["/models"], document["paths"]["/models/{name}"]
        for operation in (load["post"], unload["delete"]):
            assert operation["security"] == [{"Operator": []}]
            assert operation["servers"][0]["url"] == "http://localhost:{port}"
        body = {"bundle": "/none"}
        refused = await world.client.post("/models", json=body, **key_as(scheme, "secret"))
        accepted = await world.client.post("/models", json=body, **key_as(scheme, "operator's"))
    assert refused.status_code == 401 and "operator's key" in refused.json()["error"]
    assert (accepted.status_code, accepted.json()["field"]) == (400, "bundle")


@pytest.mark.parametrize(
    ("path", "headers", "message"),
    [
        (
            "/v2/usage",
            {},
            "no key; this request needs a key, sent as Authorization: DeepL-Auth-Key KEY",
        ),
        (
            "/v2/usage",
            {"Authorization": "Bearer secret"},
            "the Authorization header has another form; this request needs a key, sent as"
            " Authorization: DeepL-Auth-Key KEY",
        ),
        (
            "/v2/usage",
            {"Authorization": "DeepL-Auth-Key wrong"},
            "the server does not know this key; this request needs a key, sent as"
            " Authorization: DeepL-Auth-Key KEY",
        ),
        (
            "/usage",
            {},
            "no key; this request needs a key, sent as Authorization: Bearer KEY, or as the field"
            " api_key",
        ),
    ],
)
async def test_a_refusal_says_what_is_wrong_with_a_key(
    tokenizer: Tokenizer, ring: KeyRing, path: str, headers: dict[str, str], message: str
) -> None:
    async with made_world(tokenizer, access={"keys": ring}) as world:
        response = await world.client.get(path, headers=headers)
    assert response.status_code == 403
    assert response.json() == {("message" if "/v2/" in path else "error"): message}
