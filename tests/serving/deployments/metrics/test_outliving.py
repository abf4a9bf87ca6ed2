"""Metrics of replicas that have ended: what was seen once is never taken back."""

import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from serving.deployments.metrics import Outliving, merged, told_of
from serving.metrics import Metrics, Outcome


def replica(folder: Path, name: str) -> tuple[Metrics, Outliving]:
    metrics = Metrics(name)
    return metrics, Outliving(folder, name, metrics.exposition)


def test_counters_outlive_their_replica_and_what_ran_is_lost(tmp_path: Path) -> None:
    first, keeping = replica(tmp_path, "a")
    for _ in range(3):
        first.started("m", "openai")
    first.ended("m", "openai", Outcome.SUCCESS, 0.1)
    seen = values(keeping.told().text)
    _, other = replica(tmp_path, "b")

    found = values(merged([other.told().text, *other.of_the_ended({"b"})]))

    assert {
        name: value for name, value in found.items() if "total" in name and name.endswith(" a")
    } == {name: value for name, value in seen.items() if "total" in name}
    assert found["attendant_requests_lost m a"] == 2
    assert "attendant_requests_running m a" not in found
    assert other.of_the_ended({"a", "b"}) == []


def test_only_the_latest_of_those_that_ended_are_kept(tmp_path: Path) -> None:
    for number in range(40):
        metrics, keeping = replica(tmp_path, f"r{number}")
        metrics.started("m", "openai")
        keeping.end()
        [path] = [path for path in tmp_path.glob("*.prom") if path.stat().st_mtime > 1e6]
        os.utime(path, (number, number))
    _, living = replica(tmp_path, "living")
    living.told()

    told = b"".join(living.of_the_ended({"living"}))

    assert b'"r39"' in told and b'"r8"' in told and b'"r7"' not in told
    assert len([*tmp_path.glob("*.prom")]) == 33


def test_without_a_folder_nothing_is_kept() -> None:
    metrics = Metrics("a")
    alone = Outliving(None, "a", metrics.exposition)
    assert alone.told().replica == "a" and alone.of_the_ended(set()) == []


def test_haproxys_queue_is_told_and_not_all_else() -> None:
    text = (
        b"# HELP haproxy_process_uptime Seconds\n# TYPE haproxy_process_uptime counter\n"
        b"haproxy_process_uptime 3\n"
        b"# HELP haproxy_backend_current_queue Number\n# TYPE haproxy_backend_current_queue gauge\n"
        b'haproxy_backend_current_queue{proxy="http-near"} 7\n'
    )
    told = told_of(text)
    assert b'current_queue{proxy="http-near"} 7' in told and b"uptime" not in told


def values(text: bytes) -> dict[str, float]:
    """Each sample by its name, model and replica."""
    return {
        " ".join((s.name, s.labels.get("model", ""), s.labels["replica"])): s.value
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
        if "bucket" not in s.name
    }
