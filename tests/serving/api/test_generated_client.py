"""A client that openapi-python-client generates from `/openapi.json`, asking a server for keys."""

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from serving.access.key_ring import KEY_VARIABLE, KeyRing
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.page.browser import listening

KEYS = KeyRing(None, {KEY_VARIABLE: "secret"})
NAME = "generated_client"


@pytest.fixture
async def url(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[str]:
    access = {"keys": KEYS, "state": open_state(tmp_path / "state")}
    async with made_world(tokenizer, access=access) as world:
        with listening(world.app, free_port()) as url:
            yield url


@pytest.fixture(
    scope="module",
    params=[KEYS, None],
    ids=["of a server with keys", "of a server without keys"],
)
def client(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ModuleType]:
    """A client that was generated from the document of a server."""
    folder = tmp_path_factory.mktemp("client")
    path = folder / "openapi.json"
    document = asyncio.run(document_of_server(tokenizer, request.param))
    path.write_text(json.dumps(with_one_media_type(document)))
    generate = (sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none")
    process = subprocess.run(
        [*generate, "--path", str(path), "--output-path", str(folder / NAME)],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert "Endpoint will not be generated" not in process.stdout + process.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module(NAME)
    for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
        del sys.modules[name]


async def document_of_server(tokenizer: Tokenizer, keys: KeyRing | None) -> Any:
    async with made_world(tokenizer, access={"keys": keys}) as world:
        return (await world.client.get("/openapi.json")).json()


def with_one_media_type(document: Any) -> Any:
    """Return the document with bodies in JSON where they may also be forms: for bodies of several
    media types the generator writes code that does not run (its issue 1451).
    """
    for operation in (item for path in document["paths"].values() for item in path.values()):
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            operation["requestBody"]["content"] = {"application/json": content["application/json"]}
    return document


@pytest.mark.parametrize(
    ("operation", "prefix", "status"),
    [
        ("open_ai.models_v1_models_get", "Bearer", 401),
        ("deep_l.deepl_usage_v2_usage_get", "DeepL-Auth-Key", 403),
        ("deep_l.list_glossaries_v3_glossaries_get", "DeepL-Auth-Key", 403),
        ("libre_translate.libretranslate_usage_usage_get", "Bearer", 403),
    ],
)
async def test_a_generated_client_sends_its_key(
    client: Any, url: str, operation: str, prefix: str, status: int
) -> None:
    function = importlib.import_module(f"{NAME}.api.{operation}").asyncio_detailed
    for key, expected in (("secret", 200), ("wrong", status)):
        connected = client.AuthenticatedClient(base_url=url, token=key, prefix=prefix)
        async with connected:
            response = await function(client=connected)
        assert (response.status_code, response.parsed is not None) == (expected, True)


async def test_a_generated_client_sends_a_key_with_a_body(client: Any, url: str) -> None:
    models = importlib.import_module(f"{NAME}.models")
    complete = importlib.import_module(f"{NAME}.api.open_ai.completions_v1_completions_post")
    translate = importlib.import_module(f"{NAME}.api.libre_translate.translate_translate_post")
    completion = models.CompletionBody(model="story", prompt="p")
    translation = models.TranslateBody(q="a dog", source="en", target="fr")

    async with client.AuthenticatedClient(base_url=url, token="secret") as bearer:
        completed = await complete.asyncio_detailed(client=bearer, body=completion)
        translated = await translate.asyncio_detailed(client=bearer, body=translation)

    assert completed.status_code == 200, completed.content
    assert completed.parsed.model == "story"
    assert translated.status_code == 200, translated.content
    assert translated.parsed.translated_text == "A DOG"
