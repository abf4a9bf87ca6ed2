"""Patches of Ray Serve and uvicorn in a replica, for what they have no option for.

Each names the test that fails without it.
"""

import sys
from typing import Any

import ray
from ray.serve._private import replica
from uvicorn.protocols.http import httptools_impl

_LOOPBACK = "127.0.0.1"
_add_port = replica.add_port_to_grpc_server


def apply_patches() -> None:
    """Patch Ray Serve and uvicorn in a replica's process."""
    httptools_impl.RequestResponseCycle = Cycle  # type: ignore[misc]
    if ray.util.get_node_ip_address() == _LOOPBACK:
        replica.add_port_to_grpc_server = _add_loopback_port


class Cycle(httptools_impl.RequestResponseCycle):
    """A request and its answer. Streams for HTTP/1.0 clients end with the connection.

    These clients do not know chunks (RFC 9112, 6.1), but uvicorn sends every answer without a
    length in chunks, and HAProxy passes them on. Collecting a stream to send it whole would take
    streaming from everyone behind nginx, which asks in HTTP/1.0 by default.
    Test: tests/serving/deployments/servers/test_http.py.
    """

    async def send(self, message: Any) -> None:
        if self.scope["http_version"] == "1.0":
            self._send_without_chunks(message)
        await super().send(message)

    def _send_without_chunks(self, message: Any) -> None:
        if not self.response_started:
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._has_no_length = b"content-length" not in names
            if self._has_no_length:
                self.chunked_encoding = False
                self.expected_content_length = sys.maxsize
        elif self._has_no_length and not message.get("more_body", False):
            self.expected_content_length = len(message.get("body", b""))


def _add_loopback_port(server: Any, address: str) -> int:
    """Listen for calls between replicas on the loopback address only.

    Ray Serve listens on every address ("[::]:0" is fixed in its source) even where Ray itself runs
    on the loopback address. Test: tests/serving/deployments/servers/test_deaths.py.
    """
    port: int = _add_port(server, address.replace("[::]", _LOOPBACK))
    return port
