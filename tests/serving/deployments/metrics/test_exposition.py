"""Metrics of several replicas as one text that Prometheus can read."""

from prometheus_client.parser import text_string_to_metric_families

from serving.deployments.metrics import merged
from serving.engine.measures import EngineStats, StepStats
from serving.engine_metrics import EngineMetrics
from serving.metrics import Metrics, Outcome
from serving.request import FinishedEvent, FinishReason


def exposition_of(replica: str) -> bytes:
    metrics = Metrics(replica)
    meter = EngineMetrics(metrics).meter_of("m")
    metrics.ended("m", "openai", Outcome.SUCCESS, 0.1)
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
        num_drafted_tokens=9,
        num_accepted_tokens=4,
    )
    meter.on_step(report, EngineStats(1, 3, 64, 1000), 0.006)
    meter.on_first_token(0.02)
    meter.on_next_token(0.005)
    meter.on_finished(FinishedEvent("r", FinishReason.STOP, 20, 1, 5), 0.0, 0.5)
    meter.on_finished(FinishedEvent("r", FinishReason.CONSTRAINT, 0, 1, 0), 0.0, 0.5)
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
        'vllm:request_success_total{engine="a",finished_reason="constraint",model_name="m"} 1.0',
        'vllm:e2e_request_latency_seconds_count{engine="a",model_name="m"} 2.0',
        'attendant_prefix_cache_tokens_total{model="m",replica="a",result="hit"} 64.0',
        'attendant_prefix_cache_tokens_total{model="m",replica="a",result="miss"} 36.0',
        'attendant_encoder_cache_total{model="m",replica="a",result="hit"} 2.0',
        'attendant_encoder_cache_total{model="m",replica="a",result="miss"} 1.0',
        'attendant_deadlines_exceeded_total{model="m",replica="a"} 1.0',
        'attendant_beam_reorders_total{model="m",replica="a"} 7.0',
        'attendant_drafted_tokens_total{model="m",replica="a"} 9.0',
        'attendant_accepted_tokens_total{model="m",replica="a"} 4.0',
        'vllm:spec_decode_num_draft_tokens_total{engine="a",model_name="m"} 9.0',
        'vllm:spec_decode_num_accepted_tokens_total{engine="a",model_name="m"} 4.0',
        'vllm:prefix_cache_queries_total{engine="a",model_name="m"} 100.0',
        'vllm:prefix_cache_hits_total{engine="a",model_name="m"} 64.0',
    ):
        assert sample in text
