"""Speaks LibreTranslate: translations, languages, and what its clients ask of a server.

Bodies are JSON or forms; fields may stand in the query too. Our extensions are in
`translate_body`.
"""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serving.api.http.openapi import OF_ANY_ROUTE
from serving.api.http.services import Services
from serving.api.http.usage import add_usage
from serving.api.libretranslate import files
from serving.api.libretranslate.languages import DETECT, listed, settings
from serving.api.libretranslate.protocol import PROTOCOL, FrontendSettings, Language
from serving.api.libretranslate.translate import TRANSLATE

ENDPOINTS = (TRANSLATE, DETECT)


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("LibreTranslate")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)

    add_usage(routes, PROTOCOL, services)

    @routes.get("/languages", responses=PROTOCOL.responses(list[Language], OF_ANY_ROUTE))
    async def languages() -> JSONResponse:
        """List languages to translate from, each with those that it can be translated into."""
        return JSONResponse(listed(await services.catalog.translator_cards()))

    @routes.get("/frontend/settings", responses=PROTOCOL.responses(FrontendSettings, OF_ANY_ROUTE))
    async def frontend_settings() -> JSONResponse:
        """Say what a page that translates may offer."""
        return JSONResponse(settings(services, await services.catalog.translator_cards()))

    @routes.post("/suggest", status_code=403, responses=PROTOCOL.refusal(403))
    async def suggest() -> JSONResponse:
        """Refuse a better translation: suggestions are not kept here."""
        raise HTTPException(403, "suggestions are not kept on this server")

    routes.include_router(files.router(services))
    return routes
