"""Reads requests about glossaries, and describes them for OpenAPI: what both versions share."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from serving.access.account import current_account
from serving.api.deepl.languages import pairs
from serving.api.deepl.protocol import OF_ANY_KEY
from serving.api.http.gate import Gate
from serving.api.http.openapi import described_body
from serving.api.http.protocol import Protocol
from serving.api.http.reading.bodies import FieldsBody, parse
from serving.api.http.reading.fields import limited_to, reads_json_or_form
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.glossaries.entries import MAX_BYTES, Pair

GLOSSARIES = "/glossaries"
GLOSSARY = "/glossaries/{glossary_id}"
# A body has the entries escaped, once as JSON or in a form.
_MAX_BODY_BYTES = 3 * MAX_BYTES + 65_536
_READER = reads_json_or_form()
_OF_A_GLOSSARY = (404, *OF_ANY_KEY)
_OF_A_PAIR = (400, *_OF_A_GLOSSARY)
_OF_A_BODY = (400, 404, 413, 415, 456, *OF_ANY_KEY)
Body = TypeVar("Body", bound=FieldsBody)
Result = TypeVar("Result")


def owner() -> str:
    """Return whose glossaries are meant: those of the key that was shown."""
    return current_account().key


async def read(request: Request, cls: type[Body]) -> Body:
    fields = await _READER.read(limited_to(_MAX_BODY_BYTES, request))
    return await asyncio.to_thread(parse, cls, fields)


async def with_pairs(services: Services, work: Callable[[frozenset[Pair]], Result]) -> Result:
    """Do work that may be long on another thread, with the pairs that a glossary may have."""
    known = frozenset(pairs(await services.catalog.translator_cards()))
    return await asyncio.to_thread(work, known)


def pair_in(request: Request) -> Pair:
    """Return the pair of languages in the query. Raises RequestError."""
    for name in ("source_lang", "target_lang"):
        if name not in request.query_params:
            raise RequestError(name, None, "is required")
    found = request.query_params
    return Pair.of(found["source_lang"], found["target_lang"])


class GlossaryRoutes:
    """Adds routes that need a key, each with its description."""

    def __init__(self, protocol: Protocol, services: Services, tag: str) -> None:
        self.routes: APIRouter = protocol.router(tag)
        self._protocol = protocol
        self._doors = [Depends(Gate(services.keys).door(protocol))]

    def add(
        self,
        method: str,
        path: str,
        handle: Callable[..., Any],
        answer: Any,
        status: int = 200,
        body: type[BaseModel] | None = None,
        example: Mapping[str, Any] | None = None,
        has_pair: bool = False,
        text: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a route.

        answer: the type of its JSON; None if it is none. has_pair: the query names a pair of
        languages. text: describes an answer that is no JSON.
        """
        statuses = _OF_A_BODY if body else _OF_A_PAIR if has_pair else _OF_A_GLOSSARY
        described = self._protocol.responses(answer, statuses)
        described[200] = dict(text) if text else described[200]
        extra: dict[str, Any] = {}
        if body is not None:
            extra = described_body(body, *_READER.media_types, example=example or {})
        if has_pair:
            extra["parameters"] = [_parameter(name) for name in ("source_lang", "target_lang")]
        self.routes.add_api_route(
            path,
            handle,
            methods=[method],
            status_code=status,
            responses={status: described.pop(200), **described},
            dependencies=self._doors,
            openapi_extra=extra or None,
            route_class_override=self._protocol.route_class,
        )


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}
