"""Authentication by API key, which each protocol reads from its own header or field."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers

from serving.access.account import current_account
from serving.access.key_ring import Key, KeyRing
from serving.api.http.protocol import Protocol
from serving.errors import KeyRefused


class Gate:
    """Stands before all work. Without a ring everyone may come in."""

    def __init__(self, ring: KeyRing | None) -> None:
        self._ring = ring

    def needs_no_body(self, protocol: Protocol, headers: Headers) -> None:
        """Raise KeyRefused where the headers show no key and the body cannot: it is not read."""
        if self._ring and protocol.key_field is None:
            self._key_in(protocol, headers, {})

    @contextmanager
    def admitted(
        self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]
    ) -> Iterator[None]:
        """Let a request in, and charge its key at the end. Raises KeyRefused and RateExceeded."""
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

    def door(self, protocol: Protocol) -> Callable[[Request], Awaitable[None]]:
        """Make a dependency for routes that read no body."""

        async def show_key(request: Request) -> None:
            if self._ring:
                key = self._key_in(protocol, request.headers, request.query_params)
                current_account().key = key.name

        return show_key

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
