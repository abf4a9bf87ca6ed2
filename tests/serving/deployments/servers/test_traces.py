"""A real server that sends spans to a collector over HTTP, from the replica that was asked and from
the one that did the work.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.served import eventually, int8_bundle, served

pytestmark = pytest.mark.servers

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ONE_CPU = {"cpus_per_replica": 1, "engines": 1, "threads": 1}


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its URL, and the spans that it has got."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
        server.shutdown()


def test_spans_of_one_request_come_from_both_replicas(tmp_path: Path) -> None:
    groups = [
        {"name": name, "bundles": [int8_bundle(name, "transformer", tmp_path)], **ONE_CPU}
        for name in ("near", "far")
    ]
    with collector() as (endpoint, spans):
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        environment = os.environ | variables
        with served({"groups": groups}, tmp_path, environment=environment) as url:
            for model in ("near", "far"):
                body: dict[str, Any] = {
                    "q": "a quiet word",
                    "model": model,
                    "source": "en",
                    "target": "fr",
                }
                body |= {"protect": False}  # a random model's words are asked for once more
                headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
                answer = httpx.post(f"{url}/translate", json=body, headers=headers, timeout=60)
                assert answer.status_code == 200
            assert eventually(lambda: len(spans) >= 8)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    for model in ("near", "far"):
        [request] = [span for span in spans if span.name == f"translate {model}"]
        inner = [span for span in spans if span.parent_span_id == request.span_id]
        assert sorted(span.name for span in inner) == ["decode", "encode", "waiting"]
        assert all(request.start_time_unix_nano <= span.start_time_unix_nano for span in inner)
        [decode] = [span for span in inner if span.name == "decode"]
        found = {each.key: each.value for each in decode.attributes}
        steps = found["attendant.steps"].int_value
        assert steps > 0 and steps >= found["gen_ai.usage.output_tokens"].int_value
    assert not [span for span in spans if b"quiet" in span.SerializeToString()]
