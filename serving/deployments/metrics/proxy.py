"""Asks HAProxy, which stands before the replicas, what it has before it: connections, its queue and
what it has answered by itself, under HAProxy's own names.
"""

import os
import re
import urllib.request
from contextlib import closing

PROXY_METRICS_PORT = "ATTENDANT_PROXY_METRICS_PORT"
_TIMEOUT_SECONDS = 1.0
_TOLD = (
    "haproxy_frontend_current_sessions",
    "haproxy_frontend_limit_sessions",
    "haproxy_frontend_connections_total",
    "haproxy_frontend_http_requests_total",
    "haproxy_frontend_http_responses_total",
    "haproxy_frontend_request_errors_total",
    "haproxy_frontend_requests_denied_total",
    "haproxy_backend_current_sessions",
    "haproxy_backend_current_queue",
    "haproxy_backend_max_queue",
    "haproxy_backend_limit_sessions",
    "haproxy_backend_active_servers",
    "haproxy_backend_http_responses_total",
    "haproxy_backend_connection_errors_total",
    "haproxy_backend_response_errors_total",
    "haproxy_backend_retry_warnings_total",
    "haproxy_backend_redispatch_warnings_total",
    "haproxy_backend_client_aborts_total",
    "haproxy_backend_server_aborts_total",
    "haproxy_backend_average_queue_time_seconds",
)
_BLOCK = re.compile(rb"(?m)^# HELP (\S+) [^\n]*\n# TYPE [^\n]*\n(?:[^#][^\n]*\n)*")


def proxy_exposition() -> bytes:
    """Return HAProxy's metrics; none where none stands on this machine, or it does not answer."""
    port = os.environ.get(PROXY_METRICS_PORT)
    if port is None:
        return b""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    url = f"http://127.0.0.1:{port}/metrics?scope=frontend&scope=backend"
    try:
        with closing(opener.open(url, timeout=_TIMEOUT_SECONDS)) as answer:
            return told_of(answer.read())
    except OSError:
        return b""


def told_of(exposition: bytes) -> bytes:
    """Choose what is worth telling among some hundred metrics."""
    blocks = _BLOCK.finditer(exposition)
    return b"".join(block[0] for block in blocks if block[1].decode() in _TOLD)
