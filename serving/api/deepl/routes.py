"""Routes of DeepL's protocol: translations, documents, glossaries, languages and usage."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serving.api.deepl.documents import BODIES, add_documents
from serving.api.deepl.glossaries import (
    ChangesBody,
    DictionaryBody,
    MonolingualBody,
    MultilingualBody,
    add_monolingual,
    add_multilingual,
)
from serving.api.deepl.memories import ImportBody, add_memories
from serving.api.deepl.protocol import (
    OF_ANY_KEY,
    PROTOCOL,
    V3_PROTOCOL,
    DeepLLanguage,
    DeepLUsage,
    LanguagePairs,
    pairs,
    sources,
    targets,
)
from serving.api.deepl.translate import TRANSLATE
from serving.api.http.bodies import limited_to, reads_json_or_form
from serving.api.http.endpoint import Routes, usage_body
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.usage import current_key

ENDPOINTS = (TRANSLATE,)
OTHER_BODIES = (
    *BODIES,
    ChangesBody,
    DictionaryBody,
    ImportBody,
    MonolingualBody,
    MultilingualBody,
)
_UNLIMITED = 10**12  # what DeepL returns if there is no limit
_MAX_FORM_BYTES = 4096
_READER = reads_json_or_form()
_TYPES = {"source": sources, "target": targets}
_TYPE = {
    "name": "type",
    "in": "query",
    "schema": {"type": "string", "enum": [*_TYPES], "default": "source"},
}


def router(services: Services) -> APIRouter:
    routes, v3_routes = (Routes(each, services, "DeepL") for each in (PROTOCOL, V3_PROTOCOL))
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes.router, services)
    _add_lists(routes, services)
    add_documents(routes, services)
    add_monolingual(routes, services)
    add_multilingual(v3_routes, services)
    add_memories(v3_routes, services)
    whole = APIRouter()
    whole.include_router(routes.router)
    whole.include_router(v3_routes.router)
    return whole


def _add_lists(routes: Routes, services: Services) -> None:
    async def deepl_languages(request: Request) -> JSONResponse:
        """List source or target languages."""
        list_languages = _TYPES[await _type_in(request)]
        return JSONResponse(list_languages(await services.catalog.translator_cards()))

    async def deepl_usage() -> JSONResponse:
        """Return how much of its month the key has used."""
        usage = usage_body(await services.quota.usage(current_key()))
        has_limit = usage["character_limit"] is not None
        return JSONResponse(usage if has_limit else {**usage, "character_limit": _UNLIMITED})

    async def glossary_language_pairs() -> JSONResponse:
        """List the pairs of languages that a glossary may have."""
        found = pairs(await services.catalog.translator_cards())
        listed = [{"source_lang": pair.source, "target_lang": pair.target} for pair in found]
        return JSONResponse({"supported_languages": listed})

    async def rephrase() -> JSONResponse:
        """Refuse to rephrase a text: models here translate and write, but improve no texts."""
        raise HTTPException(400, "rephrase: no model here improves texts")

    listed, statuses = list[DeepLLanguage], (400, *OF_ANY_KEY)
    extra = {"parameters": [_TYPE]}
    routes.add("GET", "/languages", deepl_languages, listed, statuses, extra=extra)
    routes.add("GET", "/usage", deepl_usage, DeepLUsage, OF_ANY_KEY)
    place = "/glossary-language-pairs"
    routes.add("GET", place, glossary_language_pairs, LanguagePairs, OF_ANY_KEY)
    refused = PROTOCOL.refusal(400)
    routes.router.post("/write/rephrase", status_code=400, responses=refused)(rephrase)


async def _type_in(request: Request) -> str:
    """Return which languages to list. DeepL's client sends a form, others use the query."""
    fields: dict[str, Any] = dict(request.query_params)
    if request.headers.get("content-length", "0") != "0":
        fields |= await _READER.read(limited_to(_MAX_FORM_BYTES, request))
    asked = fields.get("type", "source")
    if asked not in _TYPES:
        raise RequestError("type", asked, f"must be one of {', '.join(_TYPES)}")
    return str(asked)
