"""Cuts a server-sent event stream into its JSON chunks, however the network has cut it."""

import json
from collections.abc import Iterator
from typing import Any

from loadtest.protocols.protocol import BAD_ANSWER, AnswerError

_DONE = b"[DONE]"


class Events:
    """Takes bytes as they come. `is_done` once the stream has said that it is over."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_done = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the chunks that are complete. Raises AnswerError for errors and nonsense."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue  # comments, which keep connections open, and empty lines between events
            payload = line[5:].strip()
            if payload == _DONE:
                self.is_done = True
                return
            chunk = parsed(payload)
            if error := chunk.get("error"):
                raise AnswerError("error in stream", json.dumps(error))
            yield chunk


def parsed(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises AnswerError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = data[:100].decode(errors="replace")
        raise AnswerError(BAD_ANSWER, f"not JSON: {start!r}") from error
    if not isinstance(value, dict):
        raise AnswerError(BAD_ANSWER, "not a JSON object")
    return value
