"""Alerts and the dashboard: promtool reads them, and a real Prometheus answers every query."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.rendered import ROOT
from tests.served import free_port

RULES = ROOT / "deploy/helm/monitoring/rules.yaml"
PANELS = json.loads((ROOT / "deploy/helm/monitoring/dashboard.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
DEADLINE_SECONDS = 120

with_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian's package prometheus)"
)


def in_prometheus(query: str) -> str:
    """The query without what Grafana fills in."""
    return query.replace("$model", ".*").replace("$__rate_interval", "1m")


def test_every_panel_is_titled_and_asks_something() -> None:
    assert len({panel["title"] for panel in PANELS}) == len(PANELS) >= 15
    assert all(panel["targets"] for panel in PANELS)


@with_promtool
def test_promtool_reads_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": in_prometheus(query)}
        for number, query in enumerate(QUERIES)
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)


@with_promtool
def test_the_alerts_go_off_when_they_should(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(Path(__file__).with_name("alerts.yaml"), tmp_path)
    promtool("check", "rules", tmp_path / "rules.yaml")
    promtool("test", "rules", tmp_path / "alerts.yaml")


def promtool(*words: object) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.skipif(
    not shutil.which("prometheus"), reason="Prometheus is not installed (Debian has a package)"
)
def test_prometheus_answers_the_dashboard(server_url: str, tmp_path: Path) -> None:
    with prometheus_of(server_url, tmp_path) as url:
        waiting = {query: in_prometheus(query) for query in QUERIES}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while waiting and time.monotonic() < deadline:
            use(server_url)
            waiting = {name: query for name, query in waiting.items() if not answer(url, query)}
    assert [*waiting] == []


def use(server_url: str) -> None:
    """Ask the server for everything that a panel shows, once wrongly."""
    texts = {"q": ["Good morning."] * 4, "source": "en", "target": "fr"}
    send(f"{server_url}/translate", {**texts, "num_beams": 4})
    send(f"{server_url}/translate", {**texts, "target": "xx"})
    prompt = {"model": "llama-en", "prompt": "It was a dark night " * 20, "max_tokens": 8}
    send(f"{server_url}/v1/completions", {**prompt, "stream": True})


def send(url: str, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            answered.read()
    except urllib.error.HTTPError as error:
        assert error.code < 500, error.read()


def answer(url: str, query: str) -> list[Any]:
    words = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=10) as answered:
        found: list[Any] = json.loads(answered.read())["data"]["result"]
    return found


@contextmanager
def prometheus_of(server_url: str, folder: Path) -> Iterator[str]:
    """The URL of a Prometheus that watches the server, with the shipped configuration."""
    scraping = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    scraping["global"]["scrape_interval"] = "1s"
    target = server_url.removeprefix("http://")
    scraping["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(scraping))
    shutil.copy(RULES, folder)
    place = f"127.0.0.1:{free_port()}"
    words = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={place}",
        "--log.level=error",
    ]
    with subprocess.Popen(words) as process:
        try:
            wait_for(f"http://{place}/-/ready")
            yield f"http://{place}"
        finally:
            process.terminate()


def wait_for(url: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.1)
