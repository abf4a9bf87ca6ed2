"""An upgrade of the code under load, and back: two versions side by side over one state folder, as
an orchestrator runs them. `pytest -m cluster`, in a clone with history.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.served import ROOT, eventually, free_port, int8_bundle, read_lines, url_of

OLD = "85ca707e"  # a version that was published
EN_FR = {"source_lang": "EN", "target_lang": "FR"}
TEXTS = [f"A dog runs to house number {number}." for number in range(20)]
NUM_LINES = 3000
NUM_CLIENTS = 4


def has_old_version() -> bool:
    words = ["git", "cat-file", "-e", f"{OLD}^{{commit}}"]
    return subprocess.run(words, cwd=ROOT, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not has_old_version(), reason="needs the history of this repository"),
]


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", OLD], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


class Server:
    """A server that runs some version of the code."""

    def __init__(self, code: Path, config: dict[str, Any], folder: Path) -> None:
        path = folder / f"{time.monotonic_ns()}.yaml"
        path.write_text(json.dumps({**config, "port": free_port()}, default=str))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serving.cli", "serve", "--config", str(path)],
            cwd=code,
            # The state by what all versions read: what the option is called has changed.
            env={**os.environ, "PYTHONPATH": str(code), "XDG_STATE_HOME": str(folder)},
            text=True,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.url = url_of(self.process)
        self._reading = threading.Thread(target=read_lines, args=(self.process, []))
        self._reading.start()

    def stop(self) -> None:
        """Let it drain, as after SIGTERM in a pod."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(90) == 0
        self.close()

    def close(self) -> None:
        self._reading.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    """Starts servers with one configuration, and so one state folder."""
    bundle = int8_bundle("translator", "transformer", tmp_path)
    group = {"bundles": [bundle], "cpus_per_replica": 1, "engines": 1, "threads": 1}
    config = {"groups": [{"name": "only", **group}]}
    servers: list[Server] = []

    def start(code: Path) -> Server:
        servers.append(Server(code, config, tmp_path))
        return servers[-1]

    yield start
    for each in servers:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGTERM)
            each.process.wait(90)
            each.close()


@dataclass
class Service:
    """What sends requests to the servers that are in it, as a Service of Kubernetes does."""

    urls: list[str] = field(default_factory=list)
    answers: set[tuple[str, str, str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    num_answers: int = 0
    is_over: bool = False

    def ask(self, number: int) -> None:
        while not self.is_over:
            number += 1
            urls = self.urls
            url, text = urls[number % len(urls)], TEXTS[number % len(TEXTS)]
            body = {"model": "translator", "prompt": text}
            try:
                answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
                told = answer.json()
                said = told["choices"][0]["text"]
                self.answers.add((told["system_fingerprint"], text, said))
                self.num_answers += 1
            except (httpx.HTTPError, KeyError, ValueError) as error:
                self.failures.append(f"{url}: {error!r}")

    @contextmanager
    def load(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.ask, args=(n,)) for n in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over = True
            for thread in threads:
                thread.join()


def sent_document(url: str) -> dict[str, str]:
    text = "\n".join(TEXTS[n % len(TEXTS)] for n in range(NUM_LINES))
    answer = httpx.post(
        f"{url}/v2/document", files={"file": ("a.txt", text)}, data=EN_FR, timeout=60
    )
    handle: dict[str, str] = answer.json()
    return handle


def fetched_document(url: str, handle: dict[str, str]) -> str:
    path, key = (
        f"{url}/v2/document/{handle['document_id']}",
        {"document_key": handle["document_key"]},
    )
    assert eventually(lambda: httpx.post(path, data=key).json()["status"] == "done", 120)
    return httpx.post(f"{path}/result", data=key, timeout=60).text


def replaced(service: Service, old: Server, new: Server) -> None:
    """Let both answer for some seconds, then only the new one; the old one ends."""
    service.urls = [old.url, new.url]
    time.sleep(3)
    service.urls = [new.url]
    time.sleep(1)  # until all who send requests know it
    old.stop()


def test_an_upgrade_and_its_rollback_under_load(
    old_code: Path, started: Callable[[Path], Server]
) -> None:
    first = started(old_code)
    service = Service([first.url])
    with service.load():
        documents = [sent_document(first.url)]
        second = started(ROOT)
        replaced(service, first, second)
        documents.append(sent_document(second.url))
        third = started(old_code)
        replaced(service, second, third)
        texts = {fetched_document(third.url, handle) for handle in documents}
    third.stop()
    print(service.num_answers, "answers")
    assert service.failures == []
    assert service.num_answers > 100
    assert [len(text.splitlines()) for text in texts] == [NUM_LINES] * len(texts)
    # One text for each fingerprint and request, whichever server said it.
    assert len({answer[:2] for answer in service.answers}) == len(service.answers)
    assert len({answer[0] for answer in service.answers}) == 2
