"""Streams for clients of HTTP/1.0, which know no chunks (RFC 9112, 6.1): theirs end as the
connection does.

uvicorn sends whatever has no length in chunks, to every client, and nothing that an application
says keeps it from that; HAProxy hands on what it gets. To collect a stream and send it whole would
take it from all who are behind an nginx, which asks in HTTP/1.0 unless told otherwise.
"""

import sys
from typing import Any

from uvicorn.protocols.http import httptools_impl


class Cycle(httptools_impl.RequestResponseCycle):
    """uvicorn's own for one request and its answer."""

    async def send(self, message: Any) -> None:
        if self.scope["http_version"] == "1.0":
            self._leave_unframed(message)
        await super().send(message)

    def _leave_unframed(self, message: Any) -> None:
        if not self.response_started:
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._is_unframed = b"content-length" not in names
            if self._is_unframed:
                self.chunked_encoding = False
                self.expected_content_length = sys.maxsize
        elif self._is_unframed and not message.get("more_body", False):
            self.expected_content_length = len(message.get("body", b""))


def unframe_streams() -> None:
    """Answer clients of HTTP/1.0 without frames, in this process, from now on."""
    httptools_impl.RequestResponseCycle = Cycle  # type: ignore[misc]
