"""Serves `/v3/glossaries`: glossaries of any number of pairs of languages, which may be changed."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from serving.api.deepl.answers import (
    GlossaryDictionary,
    GlossaryEntries,
    MultilingualGlossaries,
    MultilingualGlossary,
)
from serving.api.deepl.glossaries import (
    GLOSSARIES,
    GLOSSARY,
    ChangesBody,
    DictionaryBody,
    GlossaryRoutes,
    MultilingualBody,
    checked_name,
    owner,
    pair_in,
    parsed,
    read,
    with_pairs,
)
from serving.api.deepl.protocol import V3_PROTOCOL
from serving.api.http.services import Services
from serving.glossaries import Dictionary, Glossary, as_tsv

_DICTIONARY = {
    "source_lang": "en",
    "target_lang": "fr",
    "entries": "dog\tchien",
    "entries_format": "tsv",
}
_EXAMPLE = {"name": "animals", "dictionaries": [_DICTIONARY]}


def router(services: Services) -> APIRouter:
    routes = GlossaryRoutes(V3_PROTOCOL, services, "DeepL")
    _add_glossaries(routes, services)
    _add_dictionaries(routes, services)
    return routes.routes


def _add_glossaries(routes: GlossaryRoutes, services: Services) -> None:
    async def create(request: Request) -> JSONResponse:
        """Make a glossary."""
        body = await read(request, MultilingualBody)
        name = checked_name(body.name)
        dictionaries = await with_pairs(services, partial(parsed, body.dictionaries))
        made = await services.glossaries.create(owner(), name, dictionaries)
        return JSONResponse(_described(made), 201)

    async def listed() -> JSONResponse:
        """List all glossaries."""
        found = await services.glossaries.all_of(owner())
        return JSONResponse({"glossaries": list(map(_described, found))})

    async def get(glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_described(await services.glossaries.get(owner(), glossary_id)))

    async def change(request: Request, glossary_id: str) -> JSONResponse:
        """Rename a glossary, and merge entries into its dictionaries."""
        body = await read(request, ChangesBody)
        name = None if body.name is None else checked_name(body.name)
        entries = await with_pairs(services, partial(parsed, body.dictionaries))
        changed = await services.glossaries.change(owner(), glossary_id, name, entries)
        return JSONResponse(_described(changed))

    async def delete(glossary_id: str) -> Response:
        """Delete a glossary."""
        await services.glossaries.remove(owner(), glossary_id)
        return Response(status_code=204)

    routes.add("POST", GLOSSARIES, create, MultilingualGlossary, 201, MultilingualBody, _EXAMPLE)
    routes.add("GET", GLOSSARIES, listed, MultilingualGlossaries)
    routes.add("GET", GLOSSARY, get, MultilingualGlossary)
    routes.add("PATCH", GLOSSARY, change, MultilingualGlossary, 200, ChangesBody, _EXAMPLE)
    routes.add("DELETE", GLOSSARY, delete, None, 204)


def _add_dictionaries(routes: GlossaryRoutes, services: Services) -> None:
    async def entries(request: Request, glossary_id: str) -> JSONResponse:
        """Return the entries of one dictionary."""
        pair = pair_in(request)
        found = await services.glossaries.entries(owner(), glossary_id, pair)
        dictionary = {
            "source_lang": pair.source,
            "target_lang": pair.target,
            "entries": as_tsv(found),
            "entries_format": "tsv",
        }
        return JSONResponse({"dictionaries": [dictionary]})

    async def replace(request: Request, glossary_id: str) -> JSONResponse:
        """Put a dictionary in the place of the one of its languages, or beside the others."""
        body = await read(request, DictionaryBody)
        found = await with_pairs(services, body.parsed)
        made = await services.glossaries.replace_dictionary(owner(), glossary_id, body.pair, found)
        return JSONResponse(_described_dictionary(made))

    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete one dictionary."""
        await services.glossaries.remove_dictionary(owner(), glossary_id, pair_in(request))
        return Response(status_code=204)

    place = GLOSSARY + "/dictionaries"
    routes.add("GET", GLOSSARY + "/entries", entries, GlossaryEntries, has_pair=True)
    routes.add("PUT", place, replace, GlossaryDictionary, 200, DictionaryBody, _DICTIONARY)
    routes.add("DELETE", place, delete, None, 204, has_pair=True)


def _described(glossary: Glossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "dictionaries": list(map(_described_dictionary, glossary.dictionaries)),
        "creation_time": glossary.created,
    }


def _described_dictionary(dictionary: Dictionary) -> dict[str, Any]:
    return {
        "source_lang": dictionary.pair.source,
        "target_lang": dictionary.pair.target,
        "entry_count": dictionary.num_entries,
    }
