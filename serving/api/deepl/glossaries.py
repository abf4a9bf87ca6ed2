"""DeepL's glossaries. Those of `/v2` have one pair of languages and do not change; those of `/v3`
have any number of pairs and may change.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from serving.api.deepl.protocol import (
    OF_ANY_KEY,
    GlossaryDictionary,
    GlossaryEntries,
    MonolingualGlossaries,
    MonolingualGlossary,
    MultilingualGlossaries,
    MultilingualGlossary,
    pairs,
)
from serving.api.http.bodies import Fields, FieldsBody, limited_to, parse, reads_json_or_form
from serving.api.http.endpoint import Routes, query_parameters
from serving.api.http.openapi import described_body, described_text
from serving.api.http.services import Services
from serving.errors import GlossaryNotFound, RequestError, WrongMediaType
from serving.glossaries.entries import (
    MAX_BYTES,
    Entries,
    EntriesFormat,
    Pair,
    as_tsv,
    parse_entries,
)
from serving.glossaries.store import Dictionary, Glossary
from serving.observability.request_stats import current_key
from serving.text.checks import check_text

_MAX_NAME_BYTES = 1024
_MAX_DICTIONARIES = 1000
# A body has the entries escaped, once as JSON or in a form.
_MAX_BODY_BYTES = 3 * MAX_BYTES + 65_536
_READER = reads_json_or_form()
_OF_A_FORM = re.compile(r"dictionaries\[([0-9]{1,4})\]\.(\w+)")
_OF_A_GLOSSARY = (404, *OF_ANY_KEY)
_OF_A_PAIR = (400, *_OF_A_GLOSSARY)
_OF_A_GLOSSARY_BODY = (400, 404, 413, 415, 456, *OF_ANY_KEY)
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
Result = TypeVar("Result")


class DictionaryFields(BaseModel):
    """The entries of one pair of languages. entries: TSV, CSV or TBX, as the format says."""

    model_config = ConfigDict(extra="forbid")

    source_lang: str
    target_lang: str
    entries: str
    entries_format: EntriesFormat = EntriesFormat.TSV

    @property
    def pair(self) -> Pair:
        return Pair.of(self.source_lang, self.target_lang)

    def parsed(self, known: Iterable[Pair]) -> Entries:
        """Return the entries by their terms. known: allowed pairs. Raises RequestError."""
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


def _checked_name(name: str) -> str:
    """Return the name of a glossary. Raises RequestError if it is not allowed."""
    check_text("name", name)
    if not name.strip() or len(name.encode()) > _MAX_NAME_BYTES:
        raise RequestError("name", name, f"must have between 1 and {_MAX_NAME_BYTES} bytes")
    return name


def _parsed(dictionaries: Iterable[DictionaryFields], known: Iterable[Pair]) -> dict[Pair, Entries]:
    """Return the entries of each pair. Raises RequestError if a pair occurs twice."""
    found: dict[Pair, Entries] = {}
    for each in dictionaries:
        if each.pair in found:
            value = f"{each.source_lang}, {each.target_lang}"
            raise RequestError("dictionaries", value, "must have each pair of languages once")
        found[each.pair] = each.parsed(known)
    return found


def add_monolingual(routes: Routes, services: Services) -> None:
    """Add `/v2/glossaries`."""
    glossaries = services.glossaries

    async def create(request: Request) -> JSONResponse:
        """Make a glossary of one pair of languages."""
        body = await _read(request, MonolingualBody)
        name = _checked_name(body.name)
        entries = await _with_pairs(services, body.parsed)
        made = await glossaries.create(current_key(), name, {body.pair: entries})
        return JSONResponse(_monolingual(made), 201)

    async def listed() -> JSONResponse:
        """List the glossaries of one pair of languages."""
        found = await glossaries.all_of(current_key())
        listed = [_monolingual(each) for each in found if len(each.dictionaries) == 1]
        return JSONResponse({"glossaries": listed})

    async def get(glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_monolingual(await _one_pair(services, glossary_id)))

    async def entries(request: Request, glossary_id: str) -> Response:
        """Return the entries as tab-separated values."""
        _check_accepts_tsv(request)
        found = await _one_pair(services, glossary_id)
        pair = found.dictionaries[0].pair
        text = as_tsv(await glossaries.entries(current_key(), glossary_id, pair))
        return Response(text, media_type=f"{_TSV}; charset=UTF-8")

    async def delete(glossary_id: str) -> Response:
        """Delete a glossary."""
        await _one_pair(services, glossary_id)
        await glossaries.remove(current_key(), glossary_id)
        return Response(status_code=204)

    body = _described_body(MonolingualBody, _MONOLINGUAL)
    tsv = described_text(_TSV, "A line for each entry.")
    routes.add(
        *("POST", _GLOSSARIES, create, MonolingualGlossary, _OF_A_GLOSSARY_BODY),
        status=201,
        extra=body,
    )
    routes.add("GET", _GLOSSARIES, listed, MonolingualGlossaries, _OF_A_GLOSSARY)
    routes.add("GET", _GLOSSARY, get, MonolingualGlossary, _OF_A_GLOSSARY)
    routes.add("GET", _GLOSSARY + "/entries", entries, None, _OF_A_GLOSSARY, content=tsv)
    routes.add("DELETE", _GLOSSARY, delete, None, _OF_A_GLOSSARY, status=204)


def add_multilingual(routes: Routes, services: Services) -> None:
    """Add `/v3/glossaries`."""
    glossaries = services.glossaries

    async def create(request: Request) -> JSONResponse:
        """Make a glossary."""
        body = await _read(request, MultilingualBody)
        name = _checked_name(body.name)
        dictionaries = await _with_pairs(services, partial(_parsed, body.dictionaries))
        made = await glossaries.create(current_key(), name, dictionaries)
        return JSONResponse(_multilingual(made), 201)

    async def listed() -> JSONResponse:
        """List all glossaries."""
        found = await glossaries.all_of(current_key())
        return JSONResponse({"glossaries": list(map(_multilingual, found))})

    async def get(glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_multilingual(await glossaries.get(current_key(), glossary_id)))

    async def change(request: Request, glossary_id: str) -> JSONResponse:
        """Rename a glossary, and merge entries into its dictionaries."""
        body = await _read(request, ChangesBody)
        name = None if body.name is None else _checked_name(body.name)
        entries = await _with_pairs(services, partial(_parsed, body.dictionaries))
        changed = await glossaries.change(current_key(), glossary_id, name, entries)
        return JSONResponse(_multilingual(changed))

    async def delete(glossary_id: str) -> Response:
        """Delete a glossary."""
        await glossaries.remove(current_key(), glossary_id)
        return Response(status_code=204)

    body = _described_body(MultilingualBody, _MULTILINGUAL)
    changes = _described_body(ChangesBody, _MULTILINGUAL)
    routes.add(
        *("POST", _GLOSSARIES, create, MultilingualGlossary, _OF_A_GLOSSARY_BODY),
        status=201,
        extra=body,
    )
    routes.add("GET", _GLOSSARIES, listed, MultilingualGlossaries, _OF_A_GLOSSARY)
    routes.add("GET", _GLOSSARY, get, MultilingualGlossary, _OF_A_GLOSSARY)
    routes.add(
        *("PATCH", _GLOSSARY, change, MultilingualGlossary, _OF_A_GLOSSARY_BODY), extra=changes
    )
    routes.add("DELETE", _GLOSSARY, delete, None, _OF_A_GLOSSARY, status=204)
    _add_dictionaries(routes, services)


def _add_dictionaries(routes: Routes, services: Services) -> None:
    glossaries = services.glossaries

    async def entries(request: Request, glossary_id: str) -> JSONResponse:
        """Return the entries of one dictionary."""
        pair = _pair_in(request)
        found = await glossaries.entries(current_key(), glossary_id, pair)
        dictionary = {
            "source_lang": pair.source,
            "target_lang": pair.target,
            "entries": as_tsv(found),
            "entries_format": "tsv",
        }
        return JSONResponse({"dictionaries": [dictionary]})

    async def replace(request: Request, glossary_id: str) -> JSONResponse:
        """Replace the dictionary of a pair of languages, or add one."""
        body = await _read(request, DictionaryBody)
        found = await _with_pairs(services, body.parsed)
        made = await glossaries.replace_dictionary(current_key(), glossary_id, body.pair, found)
        return JSONResponse(_dictionary(made))

    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete one dictionary."""
        await glossaries.remove_dictionary(current_key(), glossary_id, _pair_in(request))
        return Response(status_code=204)

    place = _GLOSSARY + "/dictionaries"
    pair: dict[str, Any] = {
        "statuses": _OF_A_PAIR,
        "extra": query_parameters("source_lang", "target_lang"),
    }
    body = _described_body(DictionaryBody, _DICTIONARY)
    routes.add("GET", _GLOSSARY + "/entries", entries, GlossaryEntries, **pair)
    routes.add("PUT", place, replace, GlossaryDictionary, _OF_A_GLOSSARY_BODY, extra=body)
    routes.add("DELETE", place, delete, None, status=204, **pair)


def _described_body(cls: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    return described_body(cls, *_READER.media_types, example=example)


async def _read(request: Request, cls: type[Body]) -> Body:
    fields = await _READER.read(limited_to(_MAX_BODY_BYTES, request))
    return await asyncio.to_thread(parse, cls, _with_dictionaries(fields))


def _with_dictionaries(fields: Fields) -> Fields:
    """Return the fields of a body; in forms, as DeepL's client for Node.js sends them, those of
    dictionaries have names such as `dictionaries[0].entries`.
    """
    found: dict[int, Fields] = {}
    for name in [*fields]:
        if match := _OF_A_FORM.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = fields.pop(name)
    if found:
        fields["dictionaries"] = [found[number] for number in sorted(found)]
    return fields


async def _with_pairs(services: Services, work: Callable[[frozenset[Pair]], Result]) -> Result:
    """Call `work` on another thread, with the pairs of languages that a glossary may have."""
    known = frozenset(pairs(await services.catalog.translator_cards()))
    return await asyncio.to_thread(work, known)


def _pair_in(request: Request) -> Pair:
    """Return the pair of languages in the query. Raises RequestError."""
    for name in ("source_lang", "target_lang"):
        if name not in request.query_params:
            raise RequestError(name, None, "is required")
    found = request.query_params
    return Pair.of(found["source_lang"], found["target_lang"])


async def _one_pair(services: Services, glossary_id: str) -> Glossary:
    """Return a glossary of one pair; clients of `/v2` cannot see others."""
    found = await services.glossaries.get(current_key(), glossary_id)
    if len(found.dictionaries) != 1:
        raise GlossaryNotFound(glossary_id)
    return found


def _check_accepts_tsv(request: Request) -> None:
    """Raise WrongMediaType if the client does not accept tab-separated values."""
    accepted = request.headers.get("accept", "*/*")
    types = {each.partition(";")[0].strip() for each in accepted.split(",")}
    if types.isdisjoint({"*/*", "text/*", _TSV}):
        raise WrongMediaType("Accept", accepted, f"entries come as {_TSV}")


def _monolingual(glossary: Glossary) -> dict[str, Any]:
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


def _multilingual(glossary: Glossary) -> dict[str, Any]:
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
