"""The check of the API keys of requests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers

from serving.access.key_ring import Key, KeyRing
from serving.access.rates import Rates
from serving.api.http.protocol import Protocol
from serving.errors import KeyRefused
from serving.observability.request_stats import current_request_stats


class KeyCheck(Enum):
    """Where the key of a route's requests is checked."""

    BEFORE_HANDLER = auto()  # the headers or the query have it
    IN_HANDLER = auto()  # the body may have it, or refused requests are counted, too
    NONE = auto()  # none is needed


class Authenticator:
    """Checks that requests show a key of a key ring, each where its protocol has it."""

    def __init__(self, keys: KeyRing, rates: Rates) -> None:
        self._keys, self._rates = keys, rates

    def check(self, protocol: Protocol, request: Request) -> None:
        """Check a request without a body. Raises KeyRefused."""
        current_request_stats().key = self._key(
            protocol, request.headers, request.query_params
        ).name

    def check_headers(self, protocol: Protocol, headers: Headers) -> None:
        """Raise KeyRefused before a body is read, if only the headers can have the key."""
        if protocol.key_field is None:
            self._key(protocol, headers, {})

    @asynccontextmanager
    async def admit(
        self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]
    ) -> AsyncIterator[None]:
        """Admit a request, and count its tokens at the end. Raises KeyRefused and RateExceeded."""
        stats = current_request_stats()
        key = self._key(protocol, headers, fields)
        stats.key = key.name
        await self._rates.admit(key)
        try:
            yield
        finally:
            self._rates.charge(key, stats.num_tokens)

    def _key(self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]) -> Key:
        secret: Any
        authorization = headers.get("authorization", "")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != protocol.key_scheme.lower() or not secret.strip():
            secret = fields.get(protocol.key_field) if protocol.key_field else None
        if not isinstance(secret, str) or not secret.strip():
            problem = "the Authorization header has another form" if authorization else "no key"
            raise KeyRefused(problem, protocol.key_place)
        key = self._keys.find(secret.strip())
        if key is None:
            raise KeyRefused("the server does not know this key", protocol.key_place)
        return key
