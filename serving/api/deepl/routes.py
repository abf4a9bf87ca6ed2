"""Speaks DeepL: translations, languages, usage and glossaries, as its clients expect them.

Only the shape of the protocol is DeepL's. A model is chosen by languages alone.
"""

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from serving.access.account import current_account
from serving.api.deepl import documents, glossaries_v2, glossaries_v3
from serving.api.deepl.answers import DeepLLanguage, DeepLUsage, LanguagePairs
from serving.api.deepl.glossaries import (
    ChangesBody,
    DictionaryBody,
    MonolingualBody,
    MultilingualBody,
)
from serving.api.deepl.protocol import OF_ANY_KEY, PROTOCOL, pairs, sources, targets
from serving.api.deepl.translate import TRANSLATE
from serving.api.http.authentication import Gate
from serving.api.http.fields import limited_to, reads_json_or_form
from serving.api.http.services import Services
from serving.api.http.usage import written
from serving.errors import RequestError

ENDPOINTS = (TRANSLATE,)
OTHER_BODIES = (
    *documents.BODIES,
    *(ChangesBody, DictionaryBody, MonolingualBody, MultilingualBody),
)
_UNLIMITED = 10**12  # what DeepL tells those who have no limit
_MAX_FORM_BYTES = 4096
_READER = reads_json_or_form()
_TYPES = {"source": sources, "target": targets}
_TYPE = {
    "name": "type",
    "in": "query",
    "schema": {"type": "string", "enum": [*_TYPES], "default": "source"},
}


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("DeepL")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)
    _add_what_there_is(routes, services)
    whole = APIRouter()
    others = (documents, glossaries_v2, glossaries_v3)
    for each in (routes, *(other.router(services) for other in others)):
        whole.include_router(each)
    return whole


def _add_what_there_is(routes: APIRouter, services: Services) -> None:
    doors = [Depends(Gate(services.keys).door(PROTOCOL))]
    extra: dict[str, Any] = {"parameters": [_TYPE]}

    @routes.get(
        "/languages",
        responses=PROTOCOL.responses(list[DeepLLanguage], (400, *OF_ANY_KEY)),
        dependencies=doors,
        openapi_extra=extra,
    )
    async def deepl_languages(request: Request) -> JSONResponse:
        """List source or target languages."""
        asked = await _type_in(request)
        return JSONResponse(_TYPES[asked](await services.catalog.translator_cards()))

    @routes.get("/usage", responses=PROTOCOL.responses(DeepLUsage, OF_ANY_KEY), dependencies=doors)
    async def deepl_usage() -> JSONResponse:
        """Tell how much of its month the key has used."""
        usage = written(await services.quota.usage(current_account().key))
        has_limit = usage["character_limit"] is not None
        return JSONResponse(usage if has_limit else {**usage, "character_limit": _UNLIMITED})

    @routes.get(
        "/glossary-language-pairs",
        responses=PROTOCOL.responses(LanguagePairs, OF_ANY_KEY),
        dependencies=doors,
    )
    async def glossary_language_pairs() -> JSONResponse:
        """List the pairs of languages that a glossary may have."""
        found = pairs(await services.catalog.translator_cards())
        listed = [{"source_lang": pair.source, "target_lang": pair.target} for pair in found]
        return JSONResponse({"supported_languages": listed})


async def _type_in(request: Request) -> str:
    """Return which languages are meant. DeepL's own client says it in a form, other ones in the
    query.
    """
    fields: dict[str, Any] = dict(request.query_params)
    if request.headers.get("content-length", "0") != "0":
        fields |= await _READER.read(limited_to(_MAX_FORM_BYTES, request))
    asked = fields.get("type", "source")
    if asked not in _TYPES:
        raise RequestError("type", asked, f"must be one of {', '.join(_TYPES)}")
    return str(asked)
