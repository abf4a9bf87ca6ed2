"""Metrics of replicas that have ended: what was seen once is never taken back."""

import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.deployments.metrics import (
    ReplicaMetrics,
    add_readings,
    merge_expositions,
    selected_metrics,
)
from serving.engine.stats import EngineStats, StepStats
from serving.observability.engine_metrics import EngineMetrics
from serving.observability.metrics import Metrics, Outcome, Reading, chart_samples
from serving.requests.request import FinishedEvent, FinishReason, Hypothesis, OutputTokens


def replica(folder: Path, name: str) -> tuple[Metrics, ReplicaMetrics]:
    metrics = Metrics(name)
    return metrics, ReplicaMetrics(folder, name, metrics.exposition)


def test_counters_outlive_their_replica_and_what_ran_is_lost(tmp_path: Path) -> None:
    first, keeping = replica(tmp_path, "a")
    for _ in range(3):
        first.count_start("m", "openai")
    first.count_end("m", "openai", Outcome.SUCCESS, 0.1)
    seen = values(keeping.write_exposition().text)
    _, other = replica(tmp_path, "b")

    found = values(
        merge_expositions([other.write_exposition().text, *other.of_ended_replicas({"b"})])
    )

    assert {
        name: value for name, value in found.items() if "total" in name and name.endswith(" a")
    } == {name: value for name, value in seen.items() if "total" in name}
    assert found["attendant_requests_lost m a"] == 2
    assert "attendant_requests_running m a" not in found
    assert other.of_ended_replicas({"a", "b"}) == []


def test_only_the_latest_of_those_that_ended_are_kept(tmp_path: Path) -> None:
    for number in range(40):
        metrics, keeping = replica(tmp_path, f"r{number}")
        metrics.count_start("m", "openai")
        keeping.end()
        [path] = [path for path in tmp_path.glob("*.prom") if path.stat().st_mtime > 1e6]
        os.utime(path, (number, number))
    _, living = replica(tmp_path, "living")
    living.write_exposition()

    told = b"".join(living.of_ended_replicas({"living"}))

    assert b'"r39"' in told and b'"r8"' in told and b'"r7"' not in told
    assert len([*tmp_path.glob("*.prom")]) == 33


def test_without_a_folder_nothing_is_kept() -> None:
    metrics = Metrics("a")
    alone = ReplicaMetrics(None, "a", metrics.exposition)
    assert alone.write_exposition().replica == "a" and alone.of_ended_replicas(set()) == []


def test_what_charts_need_is_summed_over_models_and_replicas() -> None:
    texts = []
    for name in ("a", "b"):
        metrics = Metrics(name)
        for model in ("m", "n"):
            metrics.count_start(model, "openai")
            metrics.count_end(model, "openai", Outcome.SUCCESS, 0.1)
        metrics.count_start("m", "libretranslate")
        texts.append(chart_samples(metrics.exposition().decode()))

    readings = [Reading(10.0, texts[0]), Reading(5.0, texts[0]), Reading(10.0, texts[1])]
    first, second = add_readings(readings)

    assert (first.seconds, second.seconds) == (5.0, 10.0)
    lines = dict(line.rsplit(" ", 1) for line in second.text.splitlines())
    assert lines['attendant_requests_total{outcome="success"}'] == "4.0"
    assert lines["attendant_requests_running{}"] == "2.0"
    buckets = {name: value for name, value in lines.items() if "bucket" in name}
    assert buckets['attendant_request_seconds_bucket{le="0.05"}'] == "0.0"
    assert buckets['attendant_request_seconds_bucket{le="+Inf"}'] == "4.0"
    assert len(lines) == len(buckets) + 2


def test_large_counters_keep_all_their_digits() -> None:
    text = 'vllm:generation_tokens_total{engine="a",model_name="m"} 123456789.0\n'
    assert chart_samples(text) == "vllm:generation_tokens_total{} 123456789.0\n"


def test_replicas_read_at_the_same_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.deployments.metrics._WRITE_SECONDS", 0.25)
    keeping = [replica(tmp_path, name)[1] for name in ("a", "b")]
    deadline = time.monotonic() + 60
    while min(len(each.recent()) for each in keeping) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)

    seconds = [{reading.seconds for reading in each.recent()} for each in keeping]
    assert all(second % 0.25 == 0 for second in set.union(*seconds))
    assert len(set.intersection(*seconds)) > 0
    for each in keeping:  # a reading that came twice would count twice
        times = [reading.seconds for reading in each.recent()]
        assert len(times) == len({*times})
    for each in keeping:
        each.end()


def test_haproxys_queue_is_told_and_not_all_else() -> None:
    text = (
        b"# HELP haproxy_process_uptime Seconds\n# TYPE haproxy_process_uptime counter\n"
        b"haproxy_process_uptime 3\n"
        b"# HELP haproxy_backend_current_queue Number\n# TYPE haproxy_backend_current_queue gauge\n"
        b'haproxy_backend_current_queue{proxy="http-near"} 7\n'
    )
    told = selected_metrics(text)
    assert b'current_queue{proxy="http-near"} 7' in told and b"uptime" not in told


def values(text: bytes) -> dict[str, float]:
    """Each sample by its name, model and replica."""
    return {
        " ".join((s.name, s.labels.get("model", ""), s.labels["replica"])): s.value
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
        if "bucket" not in s.name
    }


def exposition_of(replica: str) -> bytes:
    metrics = Metrics(replica)
    recorder = EngineMetrics(metrics).recorder_for("m")
    metrics.count_end("m", "openai", Outcome.SUCCESS, 0.1)
    for outcome in (Outcome.CANCELLED, Outcome.EXPIRED, Outcome.FAILED, Outcome.REFUSED):
        metrics.count_end("m", "openai", outcome, 0.1)
    report = StepStats(
        phase_seconds={"decode": 0.004, "encode": 0.001},
        num_rows=3,
        num_source_tokens=40,
        num_padded_tokens=64,
        queue_seconds=[0.01, 0.02],
        num_prefix_hits=64,
        num_prefix_misses=36,
        num_encoder_hits=2,
        num_encoder_misses=1,
        num_expired=1,
        num_reorders=7,
    )
    recorder.on_step(report, EngineStats(1, 3, 64, 1000), 0.006)
    recorder.on_first_token(0.02)
    recorder.on_next_token(0.005)
    for reason, counts in ((FinishReason.STOP, (20, 1, 5)), (FinishReason.CONSTRAINT, (0, 1, 0))):
        only = Hypothesis(OutputTokens(), 0.0, reason)
        recorder.on_finished(FinishedEvent("r", (only,), *counts), 0.0, 0.5)
    return metrics.exposition()


def test_every_metric_is_one_family_with_all_replicas() -> None:
    text = merge_expositions([exposition_of("a"), exposition_of("b")]).decode()

    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len({*names})
    slots = next(family for family in families if family.name == "attendant_slots")
    assert {sample.labels["replica"]: sample.value for sample in slots.samples} == {
        "a": 64,
        "b": 64,
    }


def test_what_is_documented_is_there() -> None:
    text = exposition_of("a").decode()

    for sample in (
        'attendant_requests_total{model="m",outcome="success",protocol="openai",replica="a"} 1.0',
        'attendant_slots{model="m",replica="a"} 64.0',
        'attendant_padding_ratio{model="m",replica="a"} 0.375',
        'vllm:request_queue_time_seconds_count{engine="a",model_name="m"} 2.0',
        'vllm:num_requests_running{engine="a",model_name="m"} 3.0',
        'vllm:generation_tokens_total{engine="a",model_name="m"} 5.0',
        'vllm:request_success_total{engine="a",finished_reason="stop",model_name="m"} 1.0',
        'vllm:request_prefill_time_seconds_count{engine="a",model_name="m"} 2.0',
        'vllm:request_decode_time_seconds_count{engine="a",model_name="m"} 2.0',
        'vllm:request_max_num_generation_tokens_count{engine="a",model_name="m"} 2.0',
        'vllm:request_success_total{engine="a",finished_reason="constraint",model_name="m"} 1.0',
        'vllm:request_success_total{engine="a",finished_reason="abort",model_name="m"} 2.0',
        'vllm:request_success_total{engine="a",finished_reason="error",model_name="m"} 1.0',
        'vllm:e2e_request_latency_seconds_count{engine="a",model_name="m"} 2.0',
        'attendant_encoder_cache_total{model="m",replica="a",result="hit"} 2.0',
        'attendant_encoder_cache_total{model="m",replica="a",result="miss"} 1.0',
        'attendant_deadlines_exceeded_total{model="m",replica="a"} 1.0',
        'attendant_beam_reorders_total{model="m",replica="a"} 7.0',
        'vllm:prefix_cache_queries_total{engine="a",model_name="m"} 100.0',
        'vllm:prefix_cache_hits_total{engine="a",model_name="m"} 64.0',
    ):
        assert sample in text


def test_one_metric_in_two_descriptions_is_one_family() -> None:
    old, new = (
        f'# HELP a_total {text}\n# TYPE a_total counter\na_total{{replica="{text}"}} 1.0\n'
        for text in ("Old.", "New.")
    )
    text = merge_expositions([old.encode(), new.encode()]).decode()

    assert text.count("# HELP") == text.count("# TYPE") == 1
    assert text.count("\na_total{") == 2 and text.startswith("# HELP a_total Old.")
