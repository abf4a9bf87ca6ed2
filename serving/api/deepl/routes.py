"""Routes of DeepL's protocol: translations, documents, glossaries, languages and usage."""

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from serving.api.deepl.documents import add_documents
from serving.api.deepl.glossaries import add_glossaries, add_monolingual_view
from serving.api.deepl.memories import add_memories
from serving.api.deepl.protocol import (
    OTHER_RESOURCES,
    PROTOCOL,
    RESOURCES,
    V1_PROTOCOL,
    V3_PROTOCOL,
    DeepLLanguage,
    DeepLUsage,
    LanguagePairs,
    ResourceLanguage,
    glossary_pairs,
    languages,
    sources,
    targets,
)
from serving.api.deepl.translate import STYLE_REFUSALS, TRANSLATE, TRANSLATE_V1
from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import limit_body, reads_json_or_form
from serving.api.http.openapi import COMMON_STATUSES
from serving.api.http.routing import ProtocolRoute, Routes, query_parameters
from serving.api.http.services import Services
from serving.api.http.usage import usage_body
from serving.errors import RequestError
from serving.observability.request_stats import current_key

ENDPOINTS = (TRANSLATE,)
_UNLIMITED = 10**12  # what DeepL returns if there is no limit
_MAX_FORM_BYTES = 4096  # of a body that holds only a type
_READER = reads_json_or_form()
_NO_EVALUATIONS = "quality-evaluations: no model here finds errors; /v2/translate has `quality`"
_TYPES = {"source": sources, "target": targets}
_TYPE = {
    "name": "type",
    "in": "query",
    "schema": {"type": "string", "enum": [*_TYPES], "default": "source"},
}


def routes(services: Services) -> list[ProtocolRoute]:
    v2_routes = Routes(PROTOCOL, "DeepL", services.authenticator)
    for endpoint in ENDPOINTS:
        endpoint.add_to(v2_routes, services)
    _add_lists(v2_routes, services)
    add_documents(v2_routes, services)
    add_monolingual_view(v2_routes, services)
    for name in ("rephrase", "correct"):
        v2_routes.add_refusal(
            *(f"/write/{name}", 400, f"{name}: no model here improves texts"),
            name=name,
            description=f"Refuse to {name} a text: models here translate and write, but improve no"
            " texts.",
        )
    TRANSLATE_V1.add_to(v2_routes, services, "GET", is_listed=False)
    v3_routes = Routes(V3_PROTOCOL, "DeepL", services.authenticator)
    add_glossaries(v3_routes, services)
    add_memories(v3_routes, services)
    _add_resources(v3_routes, services)
    _add_style_rules(v3_routes)
    v3_routes.add_refusal(
        *("/quality-evaluations", 400, _NO_EVALUATIONS),
        protocol=V1_PROTOCOL,
        name="quality_evaluations",
        description="Refuse to list the errors of given translations; `quality` of `/v2/translate`"
        " tells how good its own translations seem to be.",
    )
    return [*v2_routes.routes, *v3_routes.routes]


def _add_lists(routes: Routes, services: Services) -> None:
    async def deepl_languages(request: Request) -> JSONResponse:
        """List source or target languages."""
        list_languages = _TYPES[await _type_in(request)]
        return JSONResponse(list_languages(await services.catalog.translator_cards()))

    async def deepl_usage(request: Request) -> JSONResponse:
        """Return how much of its month the key has used."""
        usage = usage_body(await services.quota.usage(current_key()))
        has_limit = usage["character_limit"] is not None
        return JSONResponse(usage if has_limit else {**usage, "character_limit": _UNLIMITED})

    async def glossary_language_pairs(request: Request) -> JSONResponse:
        """List the pairs of languages that a glossary may have."""
        pairs = glossary_pairs(await services.catalog.translator_cards())
        described = [{"source_lang": pair.source, "target_lang": pair.target} for pair in pairs]
        return JSONResponse({"supported_languages": described})

    of_languages, statuses = list[DeepLLanguage], (400, *COMMON_STATUSES)
    extra = {"parameters": [_TYPE]}
    routes.add("GET", "/languages", deepl_languages, of_languages, statuses, extra=extra)
    routes.add("GET", "/usage", deepl_usage, DeepLUsage, COMMON_STATUSES)
    hidden: dict[str, Any] = {"include_in_schema": False}  # older clients ask so
    routes.add("POST", "/languages", deepl_languages, of_languages, statuses, **hidden)
    routes.add("POST", "/usage", deepl_usage, DeepLUsage, COMMON_STATUSES, **hidden)
    place = "/glossary-language-pairs"
    routes.add("GET", place, glossary_language_pairs, LanguagePairs, COMMON_STATUSES)


def _add_resources(routes: Routes, services: Services) -> None:
    """Add `/v3/languages`."""

    async def resource_languages(request: Request) -> JSONResponse:
        """List the languages of a resource. Here all are stable."""
        resource = request.query_params.get("resource")
        if resource not in (*RESOURCES, *OTHER_RESOURCES):
            message = f"must be one of {', '.join((*RESOURCES, *OTHER_RESOURCES))}"
            raise RequestError("resource", resource, message)
        return JSONResponse(languages(await services.catalog.translator_cards(), resource))

    statuses, extra = (400, *COMMON_STATUSES), query_parameters("resource")
    of_languages = list[ResourceLanguage]
    routes.add("GET", "/languages", resource_languages, of_languages, statuses, extra=extra)


def _add_style_rules(routes: Routes) -> None:
    """Refuse what DeepL has below `/v3/style_rules`."""

    async def refuse(request: Request, rest: str = "") -> Response:
        raise HTTPException(400, f"style_rules: {STYLE_REFUSALS['style_id']}")

    for path in ("/style_rules", "/style_rules/{rest:path}"):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            routes.add(
                method, path, refuse, None, (), key_check=KeyCheck.NONE, include_in_schema=False
            )


async def _type_in(request: Request) -> str:
    """Return which languages to list. DeepL's client sends a form, others use the query."""
    fields: dict[str, Any] = dict(request.query_params)
    if request.headers.get("content-length", "0") != "0":
        fields |= await _READER.read(limit_body(request, _MAX_FORM_BYTES))
    kind = fields.get("type", "source")
    if kind not in _TYPES:
        raise RequestError("type", kind, f"must be one of {', '.join(_TYPES)}")
    return str(kind)
