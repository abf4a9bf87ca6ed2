"""Sends spans to a collector, where the environment names one as OpenTelemetry has it."""

from collections.abc import Mapping
from importlib.util import find_spec

from serving.tracing.spans import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"


def tracing_to_collector(environment: Mapping[str, str], replica: str) -> Tracing | None:
    """Make what traces a replica's requests; None where no collector is named.

    The packages read the rest of OpenTelemetry's variables themselves: headers, certificates, how
    many requests are sampled.
    """
    if not _is_wanted(environment):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    own = Resource.create({"service.name": "attendant", "service.instance.id": replica})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def problems_of_tracing(environment: Mapping[str, str]) -> list[str]:
    """Find what would keep spans from being sent."""
    if not _is_wanted(environment):
        return []
    named = next(name for name in ENDPOINTS if environment.get(name))
    if not _is_installed():
        return [f"{named}: needs packages that are not installed: pip install 'attendant[traces]'"]
    return [
        f"{name}: {value} is not spoken, only {_HTTP}"
        for name in _PROTOCOLS
        if (value := environment.get(name, _HTTP)) != _HTTP
    ]


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package that this one would be in
        return False


def _is_wanted(environment: Mapping[str, str]) -> bool:
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    has_exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    return any(map(environment.get, ENDPOINTS)) and has_exporter and not is_disabled
