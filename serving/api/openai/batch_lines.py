"""Answers the lines of batches as if their key had asked, after everybody who waits for answers."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from serving.access.account import accounted
from serving.api.http.endpoint import Endpoint
from serving.api.http.error_responses import ENDS, asked, log_failure
from serving.api.http.error_responses import Asked as AskedOverHTTP
from serving.api.http.services import Services
from serving.batches.worker import Asked
from serving.errors import (
    EngineStopped,
    KeyRefused,
    ModelNotFound,
    OutOfMemory,
    Overloaded,
    RateExceeded,
    RequestError,
    StorageError,
)

_PRIORITY = 1_000  # of batches; requests that say nothing have 0, and lower comes first
_SOON = (Overloaded, RateExceeded, EngineStopped, OutOfMemory, StorageError)
_WAIT_SECONDS = 5.0
_MOST_SECONDS = 30.0
_STARTING_SECONDS = 120.0  # other worker groups may be loading their models yet


class BatchLines:
    """Answers lines by the endpoints that they name. What would be refused only now is asked again
    until it is not.
    """

    def __init__(self, services: Services, endpoints: Mapping[str, Endpoint[Any, Any]]) -> None:
        self._services, self._endpoints = services, endpoints
        self._started_at = time.monotonic()

    async def __call__(self, line: Asked) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        endpoint = self._endpoints[line.endpoint]
        token = asked.set(AskedOverHTTP(line.id, "POST", line.endpoint))
        try:
            while True:
                try:
                    return 200, await self._answer(endpoint, line)
                except ENDS:
                    raise
                except BaseException as error:  # a library's panic is no Exception
                    if (seconds := self._wait_seconds(error)) is None:
                        log_failure(error)
                        return endpoint.protocol.report(error)
                    await asyncio.sleep(seconds)
        finally:
            asked.reset(token)

    async def _answer(self, endpoint: Endpoint[Any, Any], line: Asked) -> Any:
        services = self._services
        if services.keys is not None and services.keys.entry(line.owner) is None:
            raise KeyRefused(endpoint.protocol.key_place)
        if line.body.get("stream"):
            raise RequestError("stream", True, "batches are not streamed")
        with accounted() as account:
            account.key = line.owner
            async with AsyncExitStack() as resources:
                tracked = resources.enter_context(services.metrics.track(endpoint.protocol.name))
                said = {name: each for name, each in line.body.items() if each is not None}
                fields = {"priority": _PRIORITY, **said}
                response = await endpoint.answered(fields, services, tracked, resources)
                return json.loads(bytes(response.body))

    def _wait_seconds(self, error: BaseException) -> float | None:
        """Return after how long to ask again; None of what is refused for good."""
        is_starting = time.monotonic() - self._started_at < _STARTING_SECONDS
        if isinstance(error, _SOON) or (isinstance(error, ModelNotFound) and is_starting):
            wanted = getattr(error, "retry_after_seconds", _WAIT_SECONDS)
            return min(max(wanted, 0.1), _MOST_SECONDS)
        return None
