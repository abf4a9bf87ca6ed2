"""Request bodies to values: everything that can be wrong with one becomes a RequestError."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message

from serving.config import TextLimits
from serving.errors import RequestError, TooLarge

Body = TypeVar("Body", bound=BaseModel)
_BYTES_PER_CHARACTER = 12  # a character outside the basic plane, escaped in JSON
_OTHER_BYTES = 65_536
_MAX_FIELDS = 10_000


def limited(request: Request, limits: TextLimits) -> Request:
    """The request; its body ends with an error if it is cut short or longer than any served."""
    max_bytes = limits.max_characters * _BYTES_PER_CHARACTER + _OTHER_BYTES
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


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError("body", body, f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("body", value, "must be a JSON object")
    return value


def parse_form(body: bytes) -> list[tuple[str, str]]:
    """Names and values of a URL-encoded form; `curl -d q=é` leaves its UTF-8 as it is."""
    try:
        return parse_qsl(body.decode(), True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        message = f"is not a form in UTF-8 of at most {_MAX_FIELDS} fields"
        raise RequestError("body", body, message) from None


async def parse_multipart(request: Request) -> list[tuple[str, str]]:
    """Names and values of a form in parts; files are left out."""
    try:
        async with request.form(max_fields=_MAX_FIELDS) as form:
            return [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except HTTPException as error:  # what Starlette makes of anything that is wrong with one
        content_type = request.headers["content-type"]
        raise RequestError(
            "body", content_type, f"is not a form in parts: {error.detail}"
        ) from None


def parse(cls: type[Body], value: Mapping[str, Any]) -> Body:
    """`value` as `cls`. Raises RequestError naming the first field that is wrong."""
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise _request_error(error) from None


def _request_error(error: ValidationError) -> RequestError:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    # Of a union pydantic names the branch too ("q.str"): the field is what the client wrote.
    field = str(first["loc"][0]) if first["loc"] else "body"
    messages = [p["msg"] for p in problems if p["loc"][:1] == first["loc"][:1]]
    inner = f"{first['loc'][-1]} " if len(first["loc"]) > 1 else ""
    if first["type"] == "missing":
        return RequestError(field, None, f"{inner}is required")
    if first["type"] == "extra_forbidden":
        return RequestError(field, first["input"], f"{inner}is not supported here")
    message = ", or ".join(dict.fromkeys(message[:1].lower() + message[1:] for message in messages))
    return RequestError(field, first["input"], message)
