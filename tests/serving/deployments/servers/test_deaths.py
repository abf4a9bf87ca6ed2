"""A real server whose parts are killed, flooded and stopped under load: what clients get, how soon
it works again, and what is left when it ends.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from serving.deployments.process_tree import descendants
from serving.deployments.run_folder import run_folder
from tests.served import attendant, eventually, int8_bundle
from tests.serving.deployments.parts import (
    NAMES,
    kill,
    name_of,
    open_to_others,
    pids_of,
    seconds_until_answered,
)
from tests.serving.deployments.servers.test_batches import ended, lines, results
from tests.serving.deployments.test_odd_surroundings import allow_files, folder_of_run

pytestmark = pytest.mark.servers

WHOLE = {"model": "writer", "prompt": "a", "temperature": 0, "ignore_eos": True, "n": 8}
LONG = {**WHOLE, "max_tokens": 8000}
SHORT = {**WHOLE, "max_tokens": 200}
MANY = 400  # more than the connections there may be where 1024 files may be open


@dataclass
class Running:
    process: "subprocess.Popen[str]"
    url: str
    operations: str

    @property
    def folder(self) -> Path:
        return folder_of_run(f":{urlsplit(self.url).port}")

    def complete(self, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)


def start(bundle: Path, folder: Path) -> Running:
    groups = [{"bundles": [bundle], "cpus_per_replica": 1}]
    path = folder / "server.yaml"
    path.write_text(json.dumps({"port": 0, "drain_seconds": 3, "groups": groups}, default=str))
    process = attendant("serve", "--config", str(path), preexec_fn=lambda: allow_files(1024))
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if line.startswith("Serving on "):
            return Running(process, line.split()[2], told[-2].split()[-1])
    raise AssertionError("the server did not start:\n" + "".join(told))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return int8_bundle("writer", "llama", tmp_path_factory.mktemp("bundle"), context_length=8192)


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start(bundle, tmp_path_factory.mktemp("server"))
    yield running
    if running.process.poll() is None:
        running.process.terminate()
    running.process.communicate(timeout=60)


def test_nothing_but_haproxy_is_open_to_others(server: Running) -> None:
    """And HAProxy neither, if told 127.0.0.1."""
    everyone = {server.process.pid} | descendants(server.process.pid)
    assert {pid: open_to_others(pid) for pid in everyone if open_to_others(pid)} == {}


def test_the_operations_listener_serves_nobody_else(server: Running) -> None:
    statuses = {
        path: httpx.get(server.operations + path).status_code
        for path in ("/health", "/ready", "/metrics", "/v1/models", "/docs")
    }
    assert statuses == {
        "/health": 200,
        "/ready": 200,
        "/metrics": 200,
        "/v1/models": 404,
        "/docs": 404,
    }


def test_idle_connections_are_cut_and_do_not_blind_who_watches(server: Running) -> None:
    address = (urlsplit(server.url).hostname, urlsplit(server.url).port)
    idle = [socket.create_connection(address) for _ in range(MANY)]
    try:
        with pytest.raises(httpx.TimeoutException):
            httpx.get(f"{server.url}/health", timeout=2)
        assert httpx.get(f"{server.operations}/health", timeout=2).status_code == 200
        assert httpx.get(f"{server.operations}/metrics", timeout=5).status_code == 200
        assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200
        assert b"408" in idle[0].recv(100)
    finally:
        for connection in idle:
            connection.close()


def test_haproxy_is_started_again(server: Running) -> None:
    kill(server.process.pid, "haproxy")
    waited, _ = seconds_until_answered(server.url)
    assert waited < 5


def test_serves_controller_may_die_unnoticed(server: Running) -> None:
    kill(server.process.pid, "controller")
    for _ in range(20):
        assert server.complete({**WHOLE, "max_tokens": 5}).status_code == 200
    assert eventually(lambda: len(pids_of(server.process.pid, "controller")) == 1)


def test_a_replica_that_is_killed_is_replaced(server: Running) -> None:
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(server.complete, LONG)
        assert eventually(lambda: rows(server) > 0)
        kill(server.process.pid, "replica")
        waited, others = seconds_until_answered(server.url)

    answer = lost.result()
    assert answer.status_code in (502, 503)
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["type"] == "service_unavailable_error"
    assert waited < 60  # 4 s where nothing else runs
    assert {each.partition(" ")[0] for each in others} <= {"502", "503"}
    assert server.complete(SHORT).status_code == 200


@pytest.mark.slow
def test_a_batch_goes_on_after_its_replica_is_killed(server: Running) -> None:
    """Once the lease of who was killed has run out. The short form has a fake of what answers."""
    bodies = [{**SHORT, "n": 1, "prompt": f"{n}", "seed": n, "temperature": 1} for n in range(80)]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=9) as client:
        file = client.files.create(file=("in.jsonl", lines(bodies)), purpose="batch")
        batch_id = client.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        ).id
        assert eventually(lambda: num_done(client, batch_id) > 16)
        kill(server.process.pid, "replica")
        kept = num_done(client, batch_id)
        batch = ended(client, batch_id)
        found = results(client, batch.output_file_id)

    assert 16 < kept < 80 and batch.status == "completed"
    assert [*found] == [f"line {n}" for n in range(80)]
    for number in (0, 40, 79):
        alone = server.complete(bodies[number]).json()
        assert found[f"line {number}"]["body"]["choices"] == alone["choices"]


def num_done(client: openai.OpenAI, batch_id: str) -> int:
    counts = client.batches.retrieve(batch_id).request_counts
    return counts.completed if counts else 0


def test_sigterm_under_load(server: Running) -> None:
    """Expect that what is done in time is answered, the rest is told, and nothing new comes in."""
    folder = server.folder
    family = descendants(server.process.pid)
    with ThreadPoolExecutor() as pool:
        short, long = pool.submit(server.complete, SHORT), pool.submit(server.complete, LONG)
        stream = pool.submit(server.complete, {**LONG, "stream": True})
        assert eventually(lambda: rows(server) > 0 and not short.running())
        server.process.send_signal(signal.SIGTERM)
        refused = refused_by(server)

    assert httpx_status(short) == 200
    assert refused.headers["retry-after"]
    assert refused.json()["error"]["message"] == "the server is stopping; try again"
    assert long.result().status_code == 503
    assert long.result().json()["error"]["type"] == "service_unavailable_error"
    last = stream.result().text.split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "service_unavailable_error"
    assert server.process.wait(60) == 0
    assert nothing_is_left(folder, family)


@pytest.mark.parametrize("part", ["raylet", "gcs"])
def test_a_server_without_its_ray_ends(bundle: Path, tmp_path: Path, part: str) -> None:
    server = start(bundle, tmp_path)
    folder, family = server.folder, descendants(server.process.pid)

    kill(server.process.pid, part)
    started = time.monotonic()

    _, console = server.process.communicate(timeout=60)
    assert server.process.returncode == 3
    assert time.monotonic() - started < 10
    assert f"attendant: Ray's {NAMES[part]} has ended (SIGKILL)" in console
    assert nothing_is_left(folder, family)


def test_of_a_server_that_is_killed_nothing_is_left(bundle: Path, tmp_path: Path) -> None:
    """Its folder goes when a server starts the next time."""
    server = start(bundle, tmp_path)
    folder, family = server.folder, descendants(server.process.pid)

    server.process.kill()
    server.process.communicate(timeout=60)

    assert eventually(lambda: not alive(family)), [name_of(pid) for pid in family]
    with run_folder():
        assert not folder.exists()


def rows(server: Running) -> float:
    lines = httpx.get(f"{server.operations}/metrics", timeout=10).text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running{")
    )


def refused_by(server: Running) -> httpx.Response:
    """The first answer 503 to a new request."""
    answers = []

    def is_refused() -> bool:
        answers.append(server.complete({**WHOLE, "max_tokens": 1}))
        return answers[-1].status_code == 503

    assert eventually(is_refused)
    assert httpx.get(f"{server.url}/ready").status_code == 503
    assert httpx.get(f"{server.operations}/ready").status_code == 503
    return answers[-1]


def httpx_status(answer: "Future[httpx.Response]") -> int:
    return answer.result().status_code


def nothing_is_left(folder: Path, family: set[int]) -> bool:
    return not folder.exists() and not alive(family)


def alive(family: set[int]) -> list[int]:
    return [pid for pid in family if os.path.exists(f"/proc/{pid}")]
