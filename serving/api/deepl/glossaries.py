"""DeepL's glossaries: those of `/v3` have a dictionary for each of several pairs of languages.

`/v2/glossaries` is a view of them: it makes, shows and deletes those that have one dictionary.
"""

import asyncio
import re
from collections.abc import Container, Iterable
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from serving.api.deepl.protocol import (
    GlossaryDictionary,
    GlossaryEntries,
    MonolingualGlossaries,
    MonolingualGlossary,
    MultilingualGlossaries,
    MultilingualGlossary,
    glossary_pairs,
)
from serving.api.http.bodies import Fields, FieldsBody, limit_body, parse, reads_json_or_form
from serving.api.http.openapi import COMMON_STATUSES, DescribedBody, describe_text
from serving.api.http.routing import Routes, query_parameters
from serving.api.http.services import Services
from serving.errors import GlossaryNotFound, RequestError, WrongMediaType
from serving.glossaries.entries import (
    MAX_BYTES,
    Entries,
    EntriesFormat,
    GlossaryPair,
    as_tsv,
    parse_entries,
)
from serving.glossaries.store import Dictionary, StoredGlossary
from serving.observability.request_stats import current_key
from serving.text.checks import check_text

_MAX_NAME_BYTES = 1024
_MAX_DICTIONARIES = 1000  # of a body; DeepL has fewer pairs of languages
# A body has the entries escaped: a byte takes up to three in a form.
_MAX_BODY_BYTES = 3 * MAX_BYTES + 65_536
_READER = reads_json_or_form()
_FIELD_OF_FORM = re.compile(r"dictionaries\[([0-9]{1,4})\]\.(\w+)")
_GLOSSARY_STATUSES = (404, *COMMON_STATUSES)
_PAIR_STATUSES = (400, *_GLOSSARY_STATUSES)
_GLOSSARY_BODY_STATUSES = (400, 404, 413, 415, 456, *COMMON_STATUSES)
_GLOSSARIES, _GLOSSARY = "/glossaries", "/glossaries/{glossary_id}"
_TSV = "text/tab-separated-values"
_DICTIONARY = {
    "source_lang": "en",
    "target_lang": "fr",
    "entries": "dog\tchien",
    "entries_format": "tsv",
}
_MONOLINGUAL = {"name": "animals", **_DICTIONARY, "entries": "dog\tchien\ncat\tchat"}
_MULTILINGUAL = {"name": "animals", "dictionaries": [_DICTIONARY]}
Body = TypeVar("Body", bound=FieldsBody)


class DictionaryFields(BaseModel):
    """The entries of one pair of languages. entries: TSV, CSV or TBX, as the format says."""

    model_config = ConfigDict(extra="forbid")

    source_lang: str
    target_lang: str
    entries: str
    entries_format: EntriesFormat = EntriesFormat.TSV

    @property
    def pair(self) -> GlossaryPair:
        return GlossaryPair.from_codes(self.source_lang, self.target_lang)

    def translations(self, supported: Container[GlossaryPair]) -> Entries:
        """Return the entries by their terms. Raises RequestError."""
        if self.pair not in supported:
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


def add_glossaries(routes: Routes, services: Services) -> None:
    """Add `/v3/glossaries`."""
    store = services.glossaries

    async def create(request: Request) -> JSONResponse:
        """Make a glossary."""
        body = await _read(request, MultilingualBody)
        return JSONResponse(_multilingual(await _create(services, body)), 201)

    async def list_glossaries(request: Request) -> JSONResponse:
        """List all glossaries."""
        glossaries = await store.all_of(current_key())
        return JSONResponse({"glossaries": list(map(_multilingual, glossaries))})

    async def get(request: Request, glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_multilingual(await store.get(current_key(), glossary_id)))

    async def change(request: Request, glossary_id: str) -> JSONResponse:
        """Rename a glossary, and merge entries into its dictionaries."""
        body = await _read(request, ChangesBody)
        if body.name is not None:
            _check_name(body.name)
        dictionaries = await _parse_dictionaries(services, body.dictionaries)
        glossary = await store.change(current_key(), glossary_id, body.name, dictionaries)
        return JSONResponse(_multilingual(glossary))

    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete a glossary."""
        await store.remove(current_key(), glossary_id)
        return Response(status_code=204)

    body = DescribedBody(MultilingualBody, _READER.media_types, _MULTILINGUAL)
    changes = DescribedBody(ChangesBody, _READER.media_types, _MULTILINGUAL)
    routes.add(
        *("POST", _GLOSSARIES, create, MultilingualGlossary, _GLOSSARY_BODY_STATUSES),
        status=201,
        body=body,
    )
    routes.add("GET", _GLOSSARIES, list_glossaries, MultilingualGlossaries, _GLOSSARY_STATUSES)
    routes.add("GET", _GLOSSARY, get, MultilingualGlossary, _GLOSSARY_STATUSES)
    routes.add(
        *("PATCH", _GLOSSARY, change, MultilingualGlossary, _GLOSSARY_BODY_STATUSES), body=changes
    )
    routes.add("DELETE", _GLOSSARY, delete, None, _GLOSSARY_STATUSES, status=204)
    _add_dictionaries(routes, services)


def _add_dictionaries(routes: Routes, services: Services) -> None:
    store = services.glossaries

    async def entries(request: Request, glossary_id: str) -> JSONResponse:
        """Return the entries of one dictionary."""
        pair = _pair_in(request)
        translations = await store.entries(current_key(), glossary_id, pair)
        dictionary = {
            "source_lang": pair.source,
            "target_lang": pair.target,
            "entries": as_tsv(translations),
            "entries_format": "tsv",
        }
        return JSONResponse({"dictionaries": [dictionary]})

    async def replace(request: Request, glossary_id: str) -> JSONResponse:
        """Replace the dictionary of a pair of languages, or add one."""
        body = await _read(request, DictionaryBody)
        [(pair, translations)] = (await _parse_dictionaries(services, [body])).items()
        replaced = await store.replace_dictionary(current_key(), glossary_id, pair, translations)
        return JSONResponse(_dictionary(replaced))

    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete one dictionary."""
        await store.remove_dictionary(current_key(), glossary_id, _pair_in(request))
        return Response(status_code=204)

    path = _GLOSSARY + "/dictionaries"
    pair: dict[str, Any] = {
        "statuses": _PAIR_STATUSES,
        "extra": query_parameters("source_lang", "target_lang"),
    }
    body = DescribedBody(DictionaryBody, _READER.media_types, _DICTIONARY)
    routes.add("GET", _GLOSSARY + "/entries", entries, GlossaryEntries, **pair)
    routes.add("PUT", path, replace, GlossaryDictionary, _GLOSSARY_BODY_STATUSES, body=body)
    routes.add("DELETE", path, delete, None, status=204, **pair)


def add_monolingual_view(routes: Routes, services: Services) -> None:
    """Add `/v2/glossaries`: the glossaries that have one dictionary."""
    store = services.glossaries

    async def create(request: Request) -> JSONResponse:
        """Make a glossary of one pair of languages."""
        body = await _read(request, MonolingualBody)
        as_v3 = MultilingualBody.model_construct(name=body.name, dictionaries=[body])
        return JSONResponse(_monolingual(await _create(services, as_v3)), 201)

    async def list_glossaries(request: Request) -> JSONResponse:
        """List the glossaries of one pair of languages."""
        glossaries = await store.all_of(current_key())
        visible = [glossary for glossary in glossaries if len(glossary.dictionaries) == 1]
        return JSONResponse({"glossaries": list(map(_monolingual, visible))})

    async def get(request: Request, glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_monolingual(await visible_glossary(glossary_id)))

    async def entries(request: Request, glossary_id: str) -> Response:
        """Return the entries as tab-separated values."""
        _check_accepts_tsv(request)
        [dictionary] = (await visible_glossary(glossary_id)).dictionaries
        translations = await store.entries(current_key(), glossary_id, dictionary.pair)
        return Response(as_tsv(translations), media_type=f"{_TSV}; charset=UTF-8")

    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete a glossary."""
        await visible_glossary(glossary_id)
        await store.remove(current_key(), glossary_id)
        return Response(status_code=204)

    async def visible_glossary(glossary_id: str) -> StoredGlossary:
        glossary = await store.get(current_key(), glossary_id)
        if len(glossary.dictionaries) != 1:
            raise GlossaryNotFound(glossary_id)
        return glossary

    body = DescribedBody(MonolingualBody, _READER.media_types, _MONOLINGUAL)
    tsv = describe_text(_TSV, "A line for each entry.")
    routes.add(
        *("POST", _GLOSSARIES, create, MonolingualGlossary, _GLOSSARY_BODY_STATUSES),
        status=201,
        body=body,
    )
    routes.add("GET", _GLOSSARIES, list_glossaries, MonolingualGlossaries, _GLOSSARY_STATUSES)
    routes.add("GET", _GLOSSARY, get, MonolingualGlossary, _GLOSSARY_STATUSES)
    routes.add("GET", _GLOSSARY + "/entries", entries, None, _GLOSSARY_STATUSES, content=tsv)
    routes.add("DELETE", _GLOSSARY, delete, None, _GLOSSARY_STATUSES, status=204)


async def _create(services: Services, body: MultilingualBody) -> StoredGlossary:
    """Store a glossary. Raises RequestError."""
    _check_name(body.name)
    dictionaries = await _parse_dictionaries(services, body.dictionaries)
    return await services.glossaries.create(current_key(), body.name, dictionaries)


def _check_name(name: str) -> None:
    check_text("name", name)
    if not name.strip() or len(name.encode()) > _MAX_NAME_BYTES:
        raise RequestError("name", name, f"must have between 1 and {_MAX_NAME_BYTES} bytes")


async def _parse_dictionaries(
    services: Services, dictionaries: Iterable[DictionaryFields]
) -> dict[GlossaryPair, Entries]:
    """Return the entries of each pair of languages. Raises RequestError."""
    supported = frozenset(glossary_pairs(await services.catalog.translator_cards()))

    def parse_all() -> dict[GlossaryPair, Entries]:
        entries: dict[GlossaryPair, Entries] = {}
        for dictionary in dictionaries:
            if dictionary.pair in entries:
                value = f"{dictionary.source_lang}, {dictionary.target_lang}"
                raise RequestError("dictionaries", value, "must have each pair of languages once")
            entries[dictionary.pair] = dictionary.translations(supported)
        return entries

    return await asyncio.to_thread(parse_all)  # ten MiB take seconds


async def _read(request: Request, cls: type[Body]) -> Body:
    fields = await _READER.read(limit_body(request, _MAX_BODY_BYTES))
    return await asyncio.to_thread(parse, cls, _with_dictionaries(fields))


def _with_dictionaries(fields: Fields) -> Fields:
    """Return the fields of a body; in forms, as DeepL's client for Node.js sends them, those of
    dictionaries have names such as `dictionaries[0].entries`.
    """
    dictionaries: dict[int, Fields] = {}
    for name in [*fields]:
        if match := _FIELD_OF_FORM.fullmatch(name):
            dictionaries.setdefault(int(match[1]), {})[match[2]] = fields.pop(name)
    if dictionaries:
        fields["dictionaries"] = [dictionaries[number] for number in sorted(dictionaries)]
    return fields


def _pair_in(request: Request) -> GlossaryPair:
    """Return the pair of languages in the query. Raises RequestError."""
    query = request.query_params
    for name in ("source_lang", "target_lang"):
        if name not in query:
            raise RequestError(name, None, "is required")
    return GlossaryPair.from_codes(query["source_lang"], query["target_lang"])


def _check_accepts_tsv(request: Request) -> None:
    """Raise WrongMediaType if the client does not accept tab-separated values."""
    accepted = request.headers.get("accept", "*/*")
    types = {part.partition(";")[0].strip() for part in accepted.split(",")}
    if types.isdisjoint({"*/*", "text/*", _TSV}):
        raise WrongMediaType("Accept", accepted, f"entries come as {_TSV}")


def _monolingual(glossary: StoredGlossary) -> dict[str, Any]:
    [only] = glossary.dictionaries
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "ready": True,
        "source_lang": only.pair.source,
        "target_lang": only.pair.target,
        "creation_time": glossary.created,
        "entry_count": only.num_entries,
    }


def _multilingual(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "dictionaries": list(map(_dictionary, glossary.dictionaries)),
        "creation_time": glossary.created,
    }


def _dictionary(dictionary: Dictionary) -> dict[str, Any]:
    return {
        "source_lang": dictionary.pair.source,
        "target_lang": dictionary.pair.target,
        "entry_count": dictionary.num_entries,
    }
