"""OpenTelemetry spans: one for each request, and below it what the engine did: waiting for a row,
encoding the source or prefilling the prompt, and decoding with its number of steps.

Spans are sent to the collector that the environment names. Attribute names are OpenTelemetry's own
for generative AI where it has them. Spans hold no text of users, and tokens have no spans.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serving.observability.request_stats import (
    GenerationStats,
    RequestStats,
    current_request_stats,
    start_request_stats,
)

_OPERATIONS = {
    "/chat/completions": "chat",
    "/completions": "text_completion",
    "/responses": "chat",
    "/embeddings": "embeddings",
    "/rerank": "rerank",
    "/classify": "classify",
    "/fill-mask": "fill_mask",
    "/score": "score",
}
_TRANSLATES = "translate"
_MOST_PARTS = 64  # per request: a book has thousands of sentences
_MAX_PATH_CHARACTERS = 256
Attributes = dict[str, str | int]
_W3C = TraceContextTextMapPropagator()
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"


class Answer(Protocol):
    status: int | None


class Provider(Protocol):
    def get_tracer(self, name: str) -> Tracer: ...

    def shutdown(self) -> None: ...


class Tracing:
    """Makes the spans of requests; the provider exports them."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("attendant")

    @contextmanager
    def request(
        self, method: str, path: str, headers: Mapping[str, str], answer: Answer
    ) -> Iterator[None]:
        """Make the span of a request, which is exported if a protocol counted the request.

        headers: may name a span of the client as its parent (W3C Trace Context).
        """
        span = self._tracer.start_span(path, _W3C.extract(headers), SpanKind.SERVER)
        context = set_span_in_context(span)
        stats = current_request_stats()
        stats.generations, stats.traceparent = [], _traceparent(context)
        try:
            yield
        finally:
            if stats.protocol:
                self._export_generations(stats.generations, context)
                _describe(span, stats, _operation(path))
                span.set_attribute("http.request.method", method)
                span.set_attribute("url.path", path[:_MAX_PATH_CHARACTERS])
                if answer.status is not None:
                    span.set_attribute("http.response.status_code", answer.status)
                span.end()

    @contextmanager
    def continue_request(self, traceparent: str) -> Iterator[None]:
        """Make spans of what is done here for a request whose span is in another process."""
        stats = start_request_stats()
        stats.generations, stats.traceparent = [], traceparent
        try:
            yield
        finally:
            self._export_generations(stats.generations, _W3C.extract({"traceparent": traceparent}))

    def close(self) -> None:
        """Export the spans that have not been exported yet."""
        self._provider.shutdown()

    def _export_generations(self, generations: Sequence[GenerationStats], context: Context) -> None:
        offset = time.time() - time.perf_counter()
        for generation in generations[:_MOST_PARTS]:
            read = "encode" if generation.reads_source else "prefill"
            attributes: Attributes = {
                "gen_ai.request.model": generation.model,
                "gen_ai.usage.input_tokens": generation.num_input_tokens,
                "gen_ai.usage.output_tokens": generation.num_generated_tokens,
                "attendant.steps": generation.num_steps,
            }
            started = generation.started_at + offset
            for name, seconds, more in (
                ("waiting", generation.queue_seconds, {}),
                (read, generation.prefill_seconds, {}),
                ("decode", generation.decode_seconds, attributes),
            ):
                ended = started + seconds
                span = self._tracer.start_span(
                    name, context, attributes=more, start_time=_nanoseconds(started)
                )
                span.end(_nanoseconds(ended))
                started = ended


def _describe(span: Span, stats: RequestStats, operation: str) -> None:
    span.update_name(f"{operation} {stats.model}".rstrip())
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "attendant",
        "gen_ai.request.model": stats.model,
        "gen_ai.usage.input_tokens": stats.num_input_tokens,
        "gen_ai.usage.output_tokens": stats.num_generated_tokens,
        "attendant.outcome": stats.outcome,
        "attendant.parts": len(stats.generations or ()),
    }
    span.set_attributes(attributes)
    if stats.outcome != "success":
        span.set_attribute("error.type", stats.outcome)
    if stats.outcome in ("failed", "expired", "overloaded"):
        span.set_status(Status(StatusCode.ERROR))


def _operation(path: str) -> str:
    """Return OpenTelemetry's name of a request's operation, or our own."""
    return next((name for end, name in _OPERATIONS.items() if path.endswith(end)), _TRANSLATES)


def _traceparent(context: Context) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier["traceparent"]


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def tracing_to_collector(environment: Mapping[str, str], replica: str) -> Tracing | None:
    """Return what traces a replica's requests; None if the environment names no collector.

    OpenTelemetry's packages read its other variables: headers, certificates, the sampling rate.
    """
    if not _is_wanted(environment):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "attendant", "service.instance.id": replica})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def problems_of_tracing(environment: Mapping[str, str]) -> list[str]:
    """Return what would keep spans from being sent."""
    if not _is_wanted(environment):
        return []
    named = next(name for name in ENDPOINTS if environment.get(name))
    if not _is_installed():
        return [
            f"{named}: needs packages that are not installed:"
            " pip install 'attendant-server[traces]'"
        ]
    return [
        f"{name}: {value} is not supported, only {_HTTP}"
        for name in _PROTOCOLS
        if (value := environment.get(name, _HTTP)) != _HTTP
    ]


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # raised for a missing parent package
        return False


def _is_wanted(environment: Mapping[str, str]) -> bool:
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    has_exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    return any(map(environment.get, ENDPOINTS)) and has_exporter and not is_disabled
