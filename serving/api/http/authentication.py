"""Authentication by API key, which each protocol reads from its own header or field."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers

from serving.access.account import current_account
from serving.access.keys import Key, KeyRing
from serving.api.http.protocol import Protocol
from serving.errors import KeyRefused


class Gate:
    """Checks the API keys of requests. Without a key ring every request is admitted."""

    def __init__(self, ring: KeyRing | None) -> None:
        self._ring = ring

    def check_headers(self, protocol: Protocol, headers: Headers) -> None:
        """Raise KeyRefused if the headers show no key and the body cannot; it is not read then."""
        if self._ring and protocol.key_field is None:
            self._key_in(protocol, headers, {})

    @contextmanager
    def admitted(
        self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]
    ) -> Iterator[None]:
        """Admit a request, and charge its key at the end. Raises KeyRefused and RateExceeded."""
        if self._ring is None:
            yield
            return
        account = current_account()
        key = self._key_in(protocol, headers, fields)
        account.key = key.name
        key.admit()
        try:
            yield
        finally:
            key.charge(account)

    def dependency(self, protocol: Protocol) -> Callable[[Request], Awaitable[None]]:
        """Return a FastAPI dependency that checks the key of a route without a body."""

        async def check_key(request: Request) -> None:
            if self._ring:
                key = self._key_in(protocol, request.headers, request.query_params)
                current_account().key = key.name

        return check_key

    def _key_in(self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]) -> Key:
        assert self._ring is not None
        shown = _key_of(protocol, headers, fields)
        key = self._ring.find(shown) if shown else None
        if key is None:
            raise KeyRefused(protocol.key_place)
        return key


def _key_of(protocol: Protocol, headers: Headers, fields: Mapping[str, Any]) -> str | None:
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    if scheme.lower() == protocol.key_scheme.lower() and shown.strip():
        return shown.strip()
    field = fields.get(protocol.key_field) if protocol.key_field else None
    return field if isinstance(field, str) else None
