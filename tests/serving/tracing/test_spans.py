"""Spans of requests: whose children they are, what they say, and what they never say."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.observability.request_stats import GenerationStats, current_request_stats
from serving.observability.tracing import Tracing, problems_of_tracing, tracing_to_collector
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world, tokenizer

__all__ = ["tokenizer"]
EN_FR = {"source": "en", "target": "fr"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PART = GenerationStats("m", 100.0, 0.5, 0.25, 2.0, num_steps=9, num_input_tokens=4,
                       num_generated_tokens=8, reads_source=True)  # fmt: skip


class Collected:
    """Keeps spans in memory as they end."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    def take(self) -> dict[str, ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        self._exporter.clear()
        return {span.name: span for span in spans}


@pytest.fixture
def collected() -> Iterator[Collected]:
    made = Collected()
    yield made
    made.tracing.close()


def seconds_of(span: ReadableSpan) -> float:
    assert span.start_time is not None and span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


async def test_a_request_has_a_span_that_says_how_it_went_and_no_text(
    tokenizer: Tokenizer, collected: Collected
) -> None:
    async with made_world(tokenizer, access={"tracing": collected.tracing}) as world:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        body = {"q": "a secret", **EN_FR}
        await world.client.post("/translate?api_key=secret", json=body, headers=headers)
        await world.client.get("/health")
        [span] = collected.take().values()
        assert span.name == "translate shout" and span.parent is not None and span.context
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == PARENT
        assert dict(span.attributes or {}) | {
            "gen_ai.operation.name": "translate",
            "gen_ai.request.model": "shout",
            "http.response.status_code": 200,
            "url.path": "/translate",
            "attendant.outcome": "success",
        } == dict(span.attributes or {})
        assert "secret" not in span.to_json().lower()

        chat: dict[str, Any] = {"model": "story", "prompt": "p", "stream": True}
        await world.client.post("/v1/completions", json=chat)
        await world.client.post("/translate", json={"q": "a", "model": "none", **EN_FR})
        spans = collected.take()
        assert set(spans) == {"text_completion story", "translate"}
        refused = spans["translate"].attributes or {}
        assert (refused["error.type"], refused["http.response.status_code"]) == ("refused", 404)


async def test_a_job_tells_where_its_trace_goes_on(
    tokenizer: Tokenizer, collected: Collected
) -> None:
    async with made_world(tokenizer, access={"tracing": collected.tracing}) as world:
        seen: list[str] = []
        engine = world.translator_engine
        script = engine.script

        def looked_at(request: Any) -> Any:
            seen.append(current_request_stats().traceparent)
            return script(request)

        engine.script = looked_at
        await world.client.post("/translate", json={"q": "a", **EN_FR})
        [span] = collected.take().values()
        assert span.context is not None
        own = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-"
        assert [each.startswith(own) for each in seen] == [True]


def test_what_the_engine_did_stands_beneath_the_request(collected: Collected) -> None:
    with collected.tracing.continue_request(f"00-{TRACE}-{PARENT}-01"):
        parts = current_request_stats().generations
        assert parts is not None
        parts.append(PART)
    spans = collected.take()
    assert list(spans) == ["waiting", "encode", "decode"]
    assert [round(seconds_of(span), 3) for span in spans.values()] == [0.5, 0.25, 2.0]
    assert {span.parent and f"{span.parent.span_id:016x}" for span in spans.values()} == {PARENT}
    assert spans["waiting"].end_time == spans["encode"].start_time
    assert (spans["decode"].attributes or {})["attendant.steps"] == 9


def test_a_request_of_many_parts_has_spans_of_the_first_only(collected: Collected) -> None:
    with collected.tracing.continue_request(f"00-{TRACE}-{PARENT}-01"):
        parts = current_request_stats().generations
        assert parts is not None
        parts += [PART] * 1000
    assert len(collected._exporter.get_finished_spans()) == 3 * 64


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_a_collector_nothing_is_traced(environment: dict[str, str]) -> None:
    assert tracing_to_collector(environment, "r") is None
    assert problems_of_tracing(environment) == []


def test_what_cannot_be_spoken_is_told_before_the_start() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    [problem] = problems_of_tracing(environment)
    assert problem == "OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not supported, only http/protobuf"
