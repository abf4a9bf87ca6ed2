"""Serves `/v2/glossaries`: glossaries of one pair of languages, which are made and not changed."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from serving.api.deepl.answers import MonolingualGlossaries, MonolingualGlossary
from serving.api.deepl.glossaries import (
    GLOSSARIES,
    GLOSSARY,
    GlossaryRoutes,
    MonolingualBody,
    checked_name,
    owner,
    read,
    with_pairs,
)
from serving.api.deepl.protocol import PROTOCOL
from serving.api.http.openapi import described_text
from serving.api.http.services import Services
from serving.errors import GlossaryNotFound, WrongMediaType
from serving.glossaries import Glossary, as_tsv

_TSV = "text/tab-separated-values"
_ANY_TYPES = {"*/*", "text/*", _TSV}
_EXAMPLE = {
    "name": "animals",
    "source_lang": "en",
    "target_lang": "fr",
    "entries": "dog\tchien\ncat\tchat",
    "entries_format": "tsv",
}


def router(services: Services) -> APIRouter:
    async def create(request: Request) -> JSONResponse:
        """Make a glossary of one pair of languages."""
        body = await read(request, MonolingualBody)
        name = checked_name(body.name)
        entries = await with_pairs(services, body.parsed)
        made = await services.glossaries.create(owner(), name, {body.pair: entries})
        return JSONResponse(_described(made), 201)

    async def listed() -> JSONResponse:
        """List the glossaries of one pair of languages."""
        found = await services.glossaries.all_of(owner())
        return JSONResponse({"glossaries": [_described(each) for each in found if _is_one(each)]})

    async def get(glossary_id: str) -> JSONResponse:
        """Describe a glossary."""
        return JSONResponse(_described(await _monolingual(services, glossary_id)))

    async def entries(request: Request, glossary_id: str) -> Response:
        """Return the entries as tab-separated values."""
        _check_accepted(request)
        found = await _monolingual(services, glossary_id)
        pair = found.dictionaries[0].pair
        text = as_tsv(await services.glossaries.entries(owner(), glossary_id, pair))
        return Response(text, media_type=f"{_TSV}; charset=UTF-8")

    async def delete(glossary_id: str) -> Response:
        """Delete a glossary."""
        await _monolingual(services, glossary_id)
        await services.glossaries.remove(owner(), glossary_id)
        return Response(status_code=204)

    routes = GlossaryRoutes(PROTOCOL, services, "DeepL")
    routes.add("POST", GLOSSARIES, create, MonolingualGlossary, 201, MonolingualBody, _EXAMPLE)
    routes.add("GET", GLOSSARIES, listed, MonolingualGlossaries)
    routes.add("GET", GLOSSARY, get, MonolingualGlossary)
    text = described_text(_TSV, "A line for each entry.")
    routes.add("GET", GLOSSARY + "/entries", entries, None, text=text)
    routes.add("DELETE", GLOSSARY, delete, None, 204)
    return routes.routes


async def _monolingual(services: Services, identity: str) -> Glossary:
    """Return a glossary of one pair; others are not there for clients of this version."""
    found = await services.glossaries.get(owner(), identity)
    if not _is_one(found):
        raise GlossaryNotFound(identity)
    return found


def _is_one(glossary: Glossary) -> bool:
    return len(glossary.dictionaries) == 1


def _check_accepted(request: Request) -> None:
    """Raise WrongMediaType where the client takes no tab-separated values."""
    accepted = request.headers.get("accept", "*/*")
    if _ANY_TYPES.isdisjoint(each.partition(";")[0].strip() for each in accepted.split(",")):
        raise WrongMediaType("Accept", accepted, f"entries come as {_TSV}")


def _described(glossary: Glossary) -> dict[str, Any]:
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
