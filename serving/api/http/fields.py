"""Readers of a request's fields from JSON, forms and the query.

Everything that can be wrong with a field becomes a RequestError.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Message

from serving.api.http.openapi import JSON, MULTIPART, URL_ENCODED
from serving.errors import RequestError, TooLarge, WrongMediaType
from serving.server_config import TextLimits

Fields = dict[str, Any]
Pairs = list[tuple[str, str]]
_BYTES_PER_CHARACTER = 12  # a character outside the basic plane, escaped in JSON
_OTHER_BYTES = 65_536
_MAX_FIELDS = 10_000


@dataclass(frozen=True)
class FieldReader:
    """Reads the fields of a request.

    media_types: of the bodies that it reads, for the OpenAPI document.
    """

    media_types: tuple[str, ...]
    read: Callable[[Request], Awaitable[Fields]]


async def _json_fields(request: Request) -> Fields:
    return _parsed_json(await request.body())


async def _all_fields(repeated: str, request: Request) -> Fields:
    """Read body and query together; what the body says wins."""
    content_type = _media_type(request)
    pairs = request.query_params.multi_items()
    if content_type == URL_ENCODED:
        return _gathered([*pairs, *_parsed_form(await request.body())], repeated)
    if content_type == MULTIPART:
        return _gathered([*pairs, *await _parsed_multipart(request)], repeated)
    fields = _gathered(pairs, repeated)
    body = await request.body()
    return {**fields, **_parsed_json(body)} if body else fields


async def _json_or_form_fields(lists: frozenset[str], request: Request) -> Fields:
    """Read a body of one of both types; in a form these fields are lists, however often given."""
    content_type = _media_type(request)
    if content_type in ("", JSON):
        return _parsed_json(await request.body())
    if content_type != URL_ENCODED:
        raise WrongMediaType("Content-Type", content_type, f"must be {JSON} or {URL_ENCODED}")
    pairs = _parsed_form(await request.body())
    found = {name: [value for key, value in pairs if key == name] for name, _ in pairs}
    return {name: found[name] if name in lists else found[name][-1] for name in found}


READS_JSON = FieldReader((JSON,), _json_fields)


def reads_json_or_form(*lists: str) -> FieldReader:
    """Make a reader of JSON and URL-encoded forms. lists: fields that a form may give often."""
    return FieldReader((JSON, URL_ENCODED), partial(_json_or_form_fields, frozenset(lists)))


def reads_all(repeated: str) -> FieldReader:
    """Make a reader of JSON, forms and the query, in which `repeated` becomes a list where it is
    given more than once.
    """
    return FieldReader((JSON, URL_ENCODED, MULTIPART), partial(_all_fields, repeated))


def limited(request: Request, limits: TextLimits) -> Request:
    """Return the request with a body that ends with an error if it is cut short, or longer than any
    that is served.
    """
    return limited_to(limits.max_characters * _BYTES_PER_CHARACTER + _OTHER_BYTES, request)


def limited_to(max_bytes: int, request: Request) -> Request:
    """Return the same with another limit."""
    num_bytes = 0

    async def receive() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestError("body", f"{num_bytes} bytes", "must not end before it is whole")
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise TooLarge("body", f"more than {max_bytes} bytes", "is too large")
        return message

    return Request(request.scope, receive)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parsed_json(body: bytes) -> Fields:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError("body", body, f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("body", value, "must be a JSON object")
    return value


def _parsed_form(body: bytes) -> Pairs:
    """Read a URL-encoded form; `curl -d q=é` leaves its UTF-8 as it is."""
    try:
        return parse_qsl(body.decode(), True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        message = f"is not a form in UTF-8 of at most {_MAX_FIELDS} fields"
        raise RequestError("body", body, message) from None


async def _parsed_multipart(request: Request) -> Pairs:
    """Read a form in parts; files are left out."""
    try:
        async with request.form(max_fields=_MAX_FIELDS) as form:
            return [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except HTTPException as error:  # what Starlette makes of anything that is wrong with one
        content_type = request.headers["content-type"]
        raise RequestError(
            "body", content_type, f"is not a form in parts: {error.detail}"
        ) from None


def _gathered(pairs: Pairs, repeated: str) -> Fields:
    fields: Fields = dict(pairs)
    values = [value for name, value in pairs if name == repeated]
    if len(values) > 1:
        fields[repeated] = values
    return fields
