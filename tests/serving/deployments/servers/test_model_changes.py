"""A real server whose models come and go while it is asked: two replicas of one group, and another
group.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from export.bundling.writer import export_checkpoint
from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from serving.cli import main
from serving.commands.administration import KEY_VARIABLE
from tests.served import eventually, free_port, int8_bundle, served_with_console
from tests.serving.deployments.parts import kill

pytestmark = pytest.mark.servers

EN_FR = {"source": "en", "target": "fr"}
ONE_CPU = {"cpus_per_replica": 1, "engines": 1, "threads": 1}


@dataclass
class Server:
    url: str
    operations: str
    key: str
    folder: Path
    pid: int

    def run(self, *words: str, key: str | None = None) -> Any:
        environment = {KEY_VARIABLE: self.key if key is None else key}
        return CliRunner(env=environment).invoke(main, ["models", *words, "--url", self.operations])

    def status_of(self, model: str, **more: Any) -> int:
        body = {"q": "A dog.", "model": model, **EN_FR, **more}
        return httpx.post(f"{self.url}/translate", json=body, timeout=60).status_code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("changing")
    bundle = {name: int8_bundle(name, "transformer", folder) for name in ("near", "far", "late")}
    int8_bundle("tale", "llama", folder, context_length=2048)
    keys = str(folder / "operators.json")
    key = CliRunner().invoke(main, ["keys", "create", "me", "--file", keys]).output.strip()
    groups = [
        {"name": "near", "bundles": [bundle["near"]], "replicas": 2, **ONE_CPU},
        {"name": "far", "bundles": [bundle["far"]], **ONE_CPU},
    ]
    port = free_port()
    config = {"groups": groups, "access": {"operators": "operators.json"}, "operations_port": port}
    pids: list[int] = []
    with served_with_console(config, folder, pids=pids) as (url, _):
        yield Server(url, f"http://127.0.0.1:{port}", key, folder, pids[0])


@contextmanager
def asked_without_pause(server: Server, model: str) -> Iterator["Counter[int]"]:
    """Ask for a model from two clients as long as the block runs; count the statuses."""
    statuses: Counter[int] = Counter()
    has_ended = threading.Event()

    def ask() -> None:
        while not has_ended.is_set():
            statuses[server.status_of(model)] += 1

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def answers_without_pause(
    server: Server, has_ended: threading.Event, found: "set[tuple[int, str, str]]"
) -> None:
    body = {"model": "near", "prompt": "A dog.", "max_tokens": 8}
    while not has_ended.is_set():
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        told = answer.json()
        found.add((answer.status_code, told["system_fingerprint"], json.dumps(told["choices"])))


def test_a_version_takes_the_place_of_another_and_gives_it_back(server: Server) -> None:
    old = server.folder / "bundles" / "near"
    new = server.folder / "newer"
    checkpoint = load_checkpoint(server.folder / "checkpoints" / "near")
    export_checkpoint(checkpoint, new, Precision.FP32)
    found: list[set[tuple[int, str, str]]] = []
    for bundle in (new, old):
        found.append(set())
        has_ended = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            asking = [
                pool.submit(answers_without_pause, server, has_ended, found[-1]) for _ in range(2)
            ]
            try:
                time.sleep(0.5)
                assert "served already" in server.run("load", str(bundle)).output
                told = server.run("load", str(bundle), "--replace")
                assert told.output == "near is served\n"
            finally:
                time.sleep(0.5)
                has_ended.set()
            for each in asking:
                each.result()
    # Two answers, each with its fingerprint; none failed; and the old bytes are back.
    assert len(found[0]) == len({fingerprint for _, fingerprint, _ in found[0]}) == 2
    assert {status for status, _, _ in found[0]} == {200}
    assert found[0] == found[1]
    assert "folder of its own" in server.run("load", str(old), "--replace").output
    assert "another group" in server.run("load", str(new), "--replace", "--group", "far").output
    assert 'attendant_slots{model="near"' in metrics_of(server)


def is_served_by_all(server: Server, model: str) -> bool:
    """Ask often enough that every replica is asked."""
    return {server.status_of(model) for _ in range(12)} == {200}


def test_who_shows_no_operators_key_changes_nothing(server: Server) -> None:
    bundle = str(server.folder / "bundles" / "late")
    assert "needs an operator's key" in server.run("load", bundle, key="wrong").output
    for method, path in (("POST", "/models"), ("DELETE", "/models/near")):
        answer = httpx.request(method, server.url + path, json={"bundle": bundle})
        assert answer.status_code == 404
        assert httpx.request(method, server.operations + path).status_code == 401
    assert httpx.post(f"{server.url}/%6dodels", json={}).status_code == 404
    assert httpx.post(f"{server.url}/groups/far/models", json={}).status_code == 404


@pytest.mark.parametrize("group", ["near", "far"])
def test_models_come_and_go_while_others_are_asked(server: Server, group: str) -> None:
    bundle = str(server.folder / "bundles" / "late")
    with asked_without_pause(server, "near") as near, asked_without_pause(server, "far") as far:
        assert server.status_of("late") == 404
        loaded = server.run("load", bundle, "--group", group)
        assert loaded.output == "late is served\n"
        assert is_served_by_all(server, "late")
        assert "served already" in server.run("load", bundle).output
        unloaded = server.run("unload", "late")
        assert unloaded.output == "late is served no more\n"
        assert {server.status_of("late") for _ in range(6)} == {404}
    assert set(near) == set(far) == {200}
    assert near[200] > 5 and far[200] > 5


def test_requests_for_an_unloaded_model_end_normally(server: Server) -> None:
    assert server.run("load", str(server.folder / "bundles" / "tale")).exit_code == 0
    body = {"model": "tale", "prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    url = f"{server.url}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=120) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert server.run("unload", "tale").exit_code == 0
        refused = httpx.post(url, json=body)
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
        last = [line for line in lines if line][-2:]
    assert json.loads(last[0].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert last[1] == "data: [DONE]"
    assert eventually(lambda: 'attendant_slots{model="tale"' not in metrics_of(server))


def metrics_of(server: Server) -> str:
    return httpx.get(f"{server.operations}/metrics").text


def test_what_was_loaded_outlives_a_replica(server: Server) -> None:
    assert server.run("load", str(server.folder / "bundles" / "late")).exit_code == 0
    for _ in range(2):
        kill(server.pid, "replica")
        time.sleep(1)
    assert eventually(lambda: is_ready(server) and is_served_by_all(server, "late"), 90)
    assert server.run("unload", "late").output == "late is served no more\n"


def is_ready(server: Server) -> bool:
    return httpx.get(f"{server.operations}/ready").status_code == 200


def test_what_cannot_be_is_refused_with_its_reason(server: Server, tmp_path: Path) -> None:
    assert "no such folder" in server.run("load", str(tmp_path / "none")).output
    late = str(server.folder / "bundles" / "late")
    assert "there are: far, near" in server.run("load", late, "--group", "nowhere").output
    assert "no such model" in server.run("unload", "nothing").output
    assert "last one of its group" in server.run("unload", "far").output
    headers = {"Authorization": f"Bearer {server.key}"}
    answer = httpx.post(f"{server.operations}/models", json={"file": "x"}, headers=headers)
    assert answer.status_code == 400
