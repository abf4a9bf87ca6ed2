"""A real server whose parts fail as nobody expects: its clients are told in the protocol's shape,
and who runs it sees why.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.served import eventually, int8_bundle, served_with_console

pytestmark = pytest.mark.servers

SABOTAGE = Path(__file__).parents[1] / "sabotage"
EN_FR = {"source": "en", "target": "fr"}
PLAIN = {"error": "internal error"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, list[str]]]:
    """A client, and what the server writes on its console."""
    folder = tmp_path_factory.mktemp("failing")
    near = [int8_bundle("translator", "transformer", folder), int8_bundle("near", "llama", folder)]
    groups = [
        {"name": "near", "bundles": near, "cpus_per_replica": 1},
        {"name": "far", "bundles": [int8_bundle("far", "llama", folder)], "cpus_per_replica": 1},
    ]
    with (
        served_with_console({"groups": groups}, folder, python_path=(SABOTAGE,)) as (url, lines),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client, lines


def openai_error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


def records(lines: list[str], request_id: str) -> list[str]:
    """Read what was logged of a request: each record begins with its time."""
    found = re.split(r"\n(?=\d{4}-\d\d-\d\d )", "".join(lines))
    return [record for record in found if request_id in record]


@pytest.mark.parametrize("word", ["VALUE", "PANIC"])
@pytest.mark.parametrize("model", ["translator", "near", "far"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_told_in_the_protocols_shape_and_logged_with_its_id(
    console: tuple[httpx.Client, list[str]], model: str, word: str, stream: bool
) -> None:
    client, lines = console
    message = "the worker group that serves this model failed" if model == "far" else None
    if model == "translator":
        response = client.post("/translate", json={"q": word, **EN_FR})
    else:
        body = {"model": model, "prompt": word, "stream": stream}
        response = client.post("/v1/completions", json=body)

    expected = PLAIN if model == "translator" else openai_error(message or "internal error")
    assert (response.status_code, response.json()) == (500, expected)
    cause = f"{'ValueError' if word == 'VALUE' else 'PanicException'}: the cause of it"
    request_id = response.headers["x-request-id"]
    assert eventually(lambda: cause in "".join(records(lines, request_id)))
    [record] = records(lines, request_id)
    assert "ERROR" in record.splitlines()[0]
    assert 'sitecustomize.py", line' in record
    assert client.post("/translate", json={"q": "A dog.", **EN_FR}).status_code == 200


@pytest.mark.parametrize("model", ["near", "far"])
def test_a_failure_in_the_middle_of_a_stream_is_told_in_it(
    console: tuple[httpx.Client, list[str]], model: str
) -> None:
    client, lines = console
    body = {"model": model, "prompt": "a", "stream": True, "ignore_eos": True}

    response = client.post("/v1/completions", json=body, headers={"X-Request-ID": f"late-{model}"})

    *pieces, last = [line for line in response.text.split("\n\n") if line]
    assert (response.status_code, len(pieces) > 0) == (200, True)
    assert json.loads(last.removeprefix("data: ")) == openai_error("internal error")
    assert response.headers["x-request-id"] == f"late-{model}"
    cause = "PanicException: the cause of it"
    assert eventually(lambda: cause in "".join(records(lines, f"late-{model}")))
    assert len(records(lines, f"late-{model}")) == 1
