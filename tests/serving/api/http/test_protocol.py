"""Errors take the shape of their route's protocol, wherever they are made and whatever its path."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from starlette.types import Scope

from serving.api.http.middleware import ErrorMiddleware, RequestsInProgress
from serving.api.http.protocol import Protocol
from serving.api.http.routing import Routes, protocol_at, report_routing_errors
from serving.errors import ModelNotFound, RequestError, TooLarge
from tests.serving.api.endpoints import ENDPOINTS


def shape(name: str, status: int, error: BaseException) -> dict[str, Any]:
    field = error.field if isinstance(error, RequestError) else None
    return {"by": name, "status": status, "field": field, "kind": type(error).__name__}


def protocol(name: str, prefix: str, **field_names: str) -> Protocol:
    return Protocol(name, prefix, partial(shape, name), dict, field_names)


ROOT = protocol("root", "", text="q")
DEEP = protocol("deep", "/v2", text="words", model="engine")
DEEPER = protocol("deeper", "/v2/beta")
RAISED: dict[str, BaseException] = {
    "field": RequestError("text", 1, "is wrong"),
    "large": TooLarge("text", 1, "is wrong"),
    "model": ModelNotFound("none"),
    "bug": ValueError("secret"),
}


def report(scope: Scope, error: BaseException) -> tuple[int, dict[str, Any]]:
    return protocol_at(scope, [ROOT, DEEP, DEEPER]).report(error)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Both protocols have routes, and each of them one where the other's paths are."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(ErrorMiddleware, report=report, in_progress=RequestsInProgress())
    report_routing_errors(app, report)

    async def fail(request: Request, kind: str) -> Response:
        raise RAISED[kind]

    for owner, path in (
        (ROOT, "/fail/{kind}"),
        (ROOT, "/v2/guest/{kind}"),
        (DEEP, "/fail/{kind}"),
        (protocol("own", "/v2", text="messages"), "/renamed/{kind}"),
    ):
        routes = Routes(owner, "of a test")
        routes.add("POST", path, fail, None, ())
        app.router.routes.extend(routes.routes)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://attendant") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "by", "field"),
    [
        ("/fail", "root", "q"),
        ("/v2/fail", "deep", "words"),
        ("/v2/guest", "root", "q"),
        ("/v2/renamed", "own", "messages"),
    ],
)
async def test_the_route_decides(client: httpx.AsyncClient, path: str, by: str, field: str) -> None:
    wrong = await client.post(f"{path}/field")
    bug = await client.post(f"{path}/bug")
    not_allowed = await client.put(f"{path}/field")

    assert wrong.json() == {"by": by, "status": 400, "field": field, "kind": "RequestError"}
    assert bug.json() == {"by": by, "status": 500, "field": None, "kind": "ValueError"}
    assert not_allowed.json() | {"kind": ""} == {"by": by, "status": 405, "field": None, "kind": ""}


@pytest.mark.parametrize(
    ("path", "by"),
    [
        ("/", "root"),
        ("/nowhere", "root"),
        ("/v2", "root"),
        ("/v2x/a", "root"),
        ("/v2/nowhere", "deep"),
        ("/v2/betas", "deep"),
        ("/v2/beta/nowhere", "deeper"),
    ],
)
async def test_where_no_route_is_the_longest_prefix_decides(
    client: httpx.AsyncClient, path: str, by: str
) -> None:
    response = await client.get(path)

    assert (response.status_code, response.json()["by"]) == (404, by)


async def test_an_error_stays_what_it_is_under_another_name(client: httpx.AsyncClient) -> None:
    missing = await client.post("/v2/fail/model")
    large = await client.post("/v2/fail/large")

    assert missing.json() == {
        "by": "deep",
        "status": 404,
        "field": "engine",
        "kind": "ModelNotFound",
    }
    assert large.json() == {"by": "deep", "status": 413, "field": "words", "kind": "TooLarge"}


def test_the_message_names_the_field_as_clients_do() -> None:
    error = RequestError("text", "a", "is wrong").with_field("q")

    assert str(error) == 'q: is wrong (got "a")'


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_names_lead_to_fields_of_the_body(endpoint: Any) -> None:
    """And never away from one, which an error of the body itself would then not be able to name."""
    fields = endpoint.body.model_fields
    clients = {name: field.alias or name for name, field in fields.items()}
    names = clients | endpoint.protocol.field_names

    assert {*names.values()} <= {*clients.values()}
    assert {name: names[name] for name in clients} == clients


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (("a", 1, None), '["a", 1, null]'),
        ({"é": [1.5, False]}, '{"é": [1.5, false]}'),
        ('say "a"\n', r'"say \"a\"\n"'),
        (b'{"q": 1}', r'"{\"q\": 1}"'),
        (b"\xff\x00", '"\ufffd\\u0000"'),
        ("\ud800\u2028\U000e0001", r'"\ud800\u2028\udb40\udc01"'),
        (Path("a"), '"a"'),
        ("a" * 100, '"' + "a" * 29 + "…" + "a" * 29 + '"'),
    ],
)
def test_errors_write_values_as_json_does(value: object, text: str) -> None:
    assert str(RequestError("q", value, "is wrong")) == f"q: is wrong (got {text})"
