"""Tests what `attendant serve` does around Ray; tests/serving/deployments runs the real one."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from serving.app import _wait_until_ready


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def test_a_proxy_to_the_outside_is_not_asked_about_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serving.app._READY_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _wait_until_ready(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
