"""Request bodies and routes that both versions of DeepL's glossaries share."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from serving.access.account import current_account
from serving.api.deepl.protocol import OF_ANY_KEY, pairs
from serving.api.http.authentication import Gate
from serving.api.http.bodies import FieldsBody, parse
from serving.api.http.fields import limited_to, reads_json_or_form
from serving.api.http.openapi import described_body
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.glossaries import MAX_BYTES, Entries, EntriesFormat, Pair, parse_entries
from serving.text.plain_text import check_text

_MAX_NAME_BYTES = 1024
_MAX_DICTIONARIES = 1000


class DictionaryFields(BaseModel):
    """The entries of one pair of languages. entries: as TSV or CSV, as the format says."""

    model_config = ConfigDict(extra="forbid")

    source_lang: str
    target_lang: str
    entries: str
    entries_format: EntriesFormat = EntriesFormat.TSV

    @property
    def pair(self) -> Pair:
        return Pair.of(self.source_lang, self.target_lang)

    def parsed(self, known: Iterable[Pair]) -> Entries:
        """Return the entries by their terms. Raises RequestError. known: the pairs that may be."""
        if self.pair not in known:
            message = "Unsupported glossary source and target language pair"
            raise RequestError("target_lang", f"{self.source_lang}, {self.target_lang}", message)
        check_text("entries", self.entries)
        return parse_entries(self.entries, self.entries_format, self.pair)


class DictionaryBody(DictionaryFields, FieldsBody):
    """The body of `PUT /v3/glossaries/{id}/dictionaries`."""


class MonolingualBody(DictionaryBody):
    """The body of `POST /v2/glossaries`: a glossary of one pair of languages."""

    name: str


class MultilingualBody(FieldsBody):
    """The body of `POST /v3/glossaries`: a glossary of several pairs of languages."""

    model_config = ConfigDict(extra="forbid")

    name: str
    dictionaries: Annotated[
        list[DictionaryFields], Field(min_length=1, max_length=_MAX_DICTIONARIES)
    ]


class ChangesBody(FieldsBody):
    """The body of `PATCH /v3/glossaries/{id}`: another name, further entries, or both."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    dictionaries: Annotated[list[DictionaryFields], Field(max_length=_MAX_DICTIONARIES)] = Field(
        default_factory=list
    )


def checked_name(name: str) -> str:
    """Return a name that a glossary may have. Raises RequestError."""
    check_text("name", name)
    if not name.strip() or len(name.encode()) > _MAX_NAME_BYTES:
        raise RequestError("name", name, f"must have between 1 and {_MAX_NAME_BYTES} bytes")
    return name


def parsed(dictionaries: Iterable[DictionaryFields], known: Iterable[Pair]) -> dict[Pair, Entries]:
    """Return the entries of each pair; raises RequestError where a pair comes twice."""
    found: dict[Pair, Entries] = {}
    for each in dictionaries:
        if each.pair in found:
            value = f"{each.source_lang}, {each.target_lang}"
            raise RequestError("dictionaries", value, "must have each pair of languages once")
        found[each.pair] = each.parsed(known)
    return found


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
