"""Metrics of several replicas as one text that Prometheus can read."""

from prometheus_client.parser import text_string_to_metric_families

from serving.deployments.exposition import merged
from serving.engine.measures import EngineStats, StepReport
from serving.metrics import EngineMetrics, Metrics, Outcome
from serving.request import FinishedEvent, FinishReason


def exposition_of(replica: str) -> bytes:
    metrics = Metrics(replica)
    meter = EngineMetrics(metrics).of("m")
    metrics.ended("m", "openai", Outcome.SUCCESS, 0.1)
    report = StepReport({"decode": 0.004, "encode": 0.001}, 3, 40, 64, 0, [0.01, 0.02])
    meter.on_step(report, EngineStats(1, 3, 64, 1000), 0.006)
    meter.on_first_token(0.02)
    meter.on_next_token(0.005)
    meter.on_finished(FinishedEvent("r", FinishReason.STOP, 20, 1, 5), 0.5)
    return metrics.exposition()


def test_every_metric_is_one_family_with_all_replicas() -> None:
    text = merged([exposition_of("a"), exposition_of("b")]).decode()

    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len({*names})
    rows = next(family for family in families if family.name == "attendant_rows")
    assert {sample.labels["replica"]: sample.value for sample in rows.samples} == {"a": 3, "b": 3}


def test_what_is_documented_is_there() -> None:
    text = exposition_of("a").decode()

    for sample in (
        'attendant_requests_total{model="m",outcome="success",protocol="openai",replica="a"} 1.0',
        'attendant_tokens_total{kind="generated",model="m",replica="a"} 5.0',
        'attendant_slots{model="m",replica="a"} 64.0',
        'attendant_padding_ratio{model="m",replica="a"} 0.375',
        'attendant_queue_seconds_count{model="m",replica="a"} 2.0',
        'vllm:num_requests_running{engine="a",model_name="m"} 3.0',
        'vllm:generation_tokens_total{engine="a",model_name="m"} 5.0',
        'vllm:request_success_total{engine="a",finished_reason="stop",model_name="m"} 1.0',
        'vllm:e2e_request_latency_seconds_count{engine="a",model_name="m"} 1.0',
    ):
        assert sample in text
