"""A real server with keys and an access log: what it writes, and what outlives a replica."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from serving.cli import main
from tests.served import eventually, free_port, int8_bundle, served_with_console
from tests.serving.deployments.parts import name_of, pids_of

EN_FR = {"source": "en", "target": "fr"}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, str]]:
    """Its URL, its folder and a key."""
    folder = tmp_path_factory.mktemp("guarded")
    path = str(folder / "keys.json")
    key = CliRunner().invoke(main, ["keys", "create", "alice", "--file", path]).output.strip()
    groups = [
        {"name": name, "bundles": [bundle], "cpus_per_replica": 1, "engines": 1, "threads": 1}
        for name, bundle in (
            ("counted", int8_bundle("near", "transformer", folder)),
            ("far", int8_bundle("far", "llama", folder)),
        )
    ]
    access = {"log": "access.jsonl", "keys": "keys.json"}
    config = {"groups": groups, "access": access, "operations_port": free_port()}
    with served_with_console(config, folder) as (url, _):
        yield url, folder, key


def records(folder: Path, path: str) -> list[dict[str, Any]]:
    lines = (folder / "access.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["path"] == path]


def test_official_clients_show_keys_and_lines_tell_of_them(server: tuple[str, Path, str]) -> None:
    url, folder, key = server
    with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.completions.create(model="far", prompt="hush")
        client.api_key = key
        done = client.completions.create(
            model="far", prompt="hush", max_tokens=3, extra_headers={"X-Request-ID": "from-afar"}
        )

    assert done.id.startswith("cmpl-from-afar-")
    assert eventually(lambda: len(records(folder, "/v1/completions")) == 2)
    refused, served_ = records(folder, "/v1/completions")
    assert (refused["status"], refused["outcome"], refused["key"]) == (401, "refused", "")
    assert (served_["request_id"], served_["key"], served_["model"]) == (
        "from-afar",
        "alice",
        "far",
    )
    assert done.usage is not None
    assert served_["tokens_out"] == done.usage.completion_tokens
    assert "hush" not in (folder / "access.jsonl").read_text()


def test_health_checks_of_haproxy_have_no_line(server: tuple[str, Path, str]) -> None:
    """Others who ask have one, also if they say that they are HAProxy."""
    url, folder, _ = server
    operations_port = json.loads((folder / "server.yaml").read_text())["operations_port"]
    for address in (url, f"http://127.0.0.1:{operations_port}"):
        headers = {
            "Attendant-Health-Check": "1",
        }
        assert httpx.get(f"{address}/ready", headers=headers).status_code == 200
    time.sleep(3)  # HAProxy checks each replica once a second

    assert len(records(folder, "/ready")) == 2
    text = httpx.get(f"{url}/metrics").text
    assert 'protocol="operations"' not in text


def test_counters_outlive_a_replica_that_is_killed(server: tuple[str, Path, str]) -> None:
    url, _, key = server
    with httpx.Client(base_url=url, timeout=60) as client:
        body = {"q": "A dog.", "api_key": key, **EN_FR}
        assert client.post("/translate", json=body).status_code == 200
        before = counters(client)
        os.kill(replica_of("counted"), signal.SIGKILL)

        def answers() -> bool:
            try:
                return client.post("/translate", json=body).status_code == 200
            except httpx.TransportError:
                return False

        assert eventually(answers, 60)
        after = counters(client)
    assert before and all(after[name] >= value for name, value in before.items())


def counters(client: httpx.Client) -> "Counter[tuple[Any, ...]]":
    text = client.get("/metrics").text
    assert "haproxy_backend_current_queue" in text
    return Counter(
        {
            (sample.name, *sorted(sample.labels.items())): int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("attendant_") and family.type == "counter"
        }
    )


def replica_of(group: str) -> int:
    """The process of a group's replica; no other server has a group of this name."""
    [found] = [pid for pid in pids_of(os.getpid(), "replica") if f":{group}" in name_of(pid)]
    return found
