"""Routes of DeepL's protocol: translations, documents, glossaries, languages and usage."""

from collections.abc import Awaitable, Callable
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
    OTHER_RESOURCES,
    PROTOCOL,
    RESOURCES,
    V3_PROTOCOL,
    DeepLLanguage,
    DeepLUsage,
    LanguagePairs,
    ResourceLanguage,
    languages,
    pairs,
    sources,
    targets,
)
from serving.api.deepl.translate import STYLE_REFUSALS, TRANSLATE, TRANSLATE_V1
from serving.api.http.bodies import limited_to, reads_json_or_form
from serving.api.http.endpoint import Routes, query_parameters, usage_body
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.observability.request_stats import current_key

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
    _add_resources(v3_routes, services)
    _add_refusals(routes.router, v3_routes.router)
    v1_router = TRANSLATE_V1.protocol.router("DeepL")
    TRANSLATE_V1.add_get_to(v1_router, services)
    whole = APIRouter()
    for each in (routes.router, v1_router, v3_routes.router):
        whole.include_router(each)
    refused = PROTOCOL.refusal(400)
    place = "/v1/quality-evaluations"
    whole.post(place, tags=["DeepL"], status_code=400, responses=refused)(quality_evaluations)
    return whole


async def quality_evaluations() -> JSONResponse:
    """Refuse to list the errors of given translations; `quality` of `/v2/translate` tells how good
    its own translations seem to be.
    """
    message = "quality-evaluations: no model here finds errors; /v2/translate has `quality`"
    return JSONResponse({"message": message}, 400)


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

    listed, statuses = list[DeepLLanguage], (400, *OF_ANY_KEY)
    extra = {"parameters": [_TYPE]}
    routes.add("GET", "/languages", deepl_languages, listed, statuses, extra=extra)
    routes.add("GET", "/usage", deepl_usage, DeepLUsage, OF_ANY_KEY)
    hidden: dict[str, Any] = {"include_in_schema": False}  # older clients ask so
    routes.add("POST", "/languages", deepl_languages, listed, statuses, **hidden)
    routes.add("POST", "/usage", deepl_usage, DeepLUsage, OF_ANY_KEY, **hidden)
    place = "/glossary-language-pairs"
    routes.add("GET", place, glossary_language_pairs, LanguagePairs, OF_ANY_KEY)


def _add_resources(routes: Routes, services: Services) -> None:
    """Add `/v3/languages`."""

    async def resource_languages(request: Request) -> JSONResponse:
        """List the languages of a resource. Here all are stable."""
        resource = request.query_params.get("resource")
        if resource not in (*RESOURCES, *OTHER_RESOURCES):
            message = f"must be one of {', '.join((*RESOURCES, *OTHER_RESOURCES))}"
            raise RequestError("resource", resource, message)
        return JSONResponse(languages(await services.catalog.translator_cards(), resource))

    statuses, extra = (400, *OF_ANY_KEY), query_parameters("resource")
    listed = list[ResourceLanguage]
    routes.add("GET", "/languages", resource_languages, listed, statuses, extra=extra)


def _add_refusals(routes: APIRouter, v3_routes: APIRouter) -> None:
    """Refuse by name what no model here can do."""
    for name in ("rephrase", "correct"):
        routes.add_api_route(
            f"/write/{name}",
            _refusal(f"{name}: no model here improves texts"),
            methods=["POST"],
            name=name,
            description=f"Refuse to {name} a text: models here translate and write, but improve no"
            " texts.",
            status_code=400,
            responses=PROTOCOL.refusal(400),
        )
    for path in ("/style_rules", "/style_rules/{rest:path}"):
        refuse = _refusal(f"style_rules: {STYLE_REFUSALS['style_id']}")
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        v3_routes.add_api_route(path, refuse, methods=methods, include_in_schema=False)


def _refusal(message: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise HTTPException(400, message)

    return refuse


async def _type_in(request: Request) -> str:
    """Return which languages to list. DeepL's client sends a form, others use the query."""
    fields: dict[str, Any] = dict(request.query_params)
    if request.headers.get("content-length", "0") != "0":
        fields |= await _READER.read(limited_to(_MAX_FORM_BYTES, request))
    asked = fields.get("type", "source")
    if asked not in _TYPES:
        raise RequestError("type", asked, f"must be one of {', '.join(_TYPES)}")
    return str(asked)
