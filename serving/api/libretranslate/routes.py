"""Routes of LibreTranslate's protocol: translations, documents, and lists of languages.

Bodies are JSON or forms; fields may be in the query too.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.account import current_account
from serving.api.http.bodies import FieldsBody
from serving.api.http.endpoint import Routes
from serving.api.http.openapi import MULTIPART, OF_A_BODY, OF_ANY_ROUTE, described_body
from serving.api.http.services import Services
from serving.api.http.uploads import RESULT, File, file_response, queued, uploaded
from serving.api.http.usage import add_usage
from serving.api.libretranslate.languages import DETECT, listed, settings
from serving.api.libretranslate.protocol import PROTOCOL, FrontendSettings, Language
from serving.api.libretranslate.translate import TRANSLATE
from serving.documents.formats.registry import extension_of, result_name
from serving.errors import DocumentNotFound
from serving.jobs.documents import Handle

ENDPOINTS = (TRANSLATE, DETECT)
_FILES = "/download_file"


class FileBody(FieldsBody):
    """A document to translate. source: `auto` is identified. model: an extension, as in
    `/translate`.
    """

    model_config = ConfigDict(extra="forbid")

    file: File
    source: str
    target: str
    model: str | None = None
    api_key: Any = None
    secret: Any = None


class TranslatedFile(TypedDict):
    translatedFileUrl: str


BODIES = (FileBody,)


def router(services: Services) -> APIRouter:
    async def languages() -> JSONResponse:
        """List languages to translate from, each with those that it can be translated into."""
        return JSONResponse(listed(await services.catalog.translator_cards()))

    async def frontend_settings() -> JSONResponse:
        """Return the settings of a page that translates."""
        return JSONResponse(settings(services, await services.catalog.translator_cards()))

    async def suggest() -> JSONResponse:
        """Refuse a suggestion: this server keeps none."""
        raise HTTPException(403, "suggestions are not kept on this server")

    routes = Routes(PROTOCOL, services, "LibreTranslate")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes.router, services)
    add_usage(routes, services, "libretranslate_usage")
    for path, handle, answer in (
        ("/languages", languages, list[Language]),
        ("/frontend/settings", frontend_settings, FrontendSettings),
    ):
        routes.add("GET", path, handle, answer, OF_ANY_ROUTE, needs_key=False)
    routes.router.post("/suggest", status_code=403, responses=PROTOCOL.refusal(403))(suggest)
    _add_files(routes, services)
    return routes.router


def _add_files(routes: Routes, services: Services) -> None:
    async def translate_file(request: Request) -> JSONResponse:
        """Translate a document, and return a link to it that works until it expires."""
        async with uploaded(request, services, PROTOCOL, FileBody) as body:
            handle = await queued(services, body.file, body.source, body.target, body.model)
            await _finished(services, handle)
            name = f"{handle.id}.{handle.key}.{extension_of(result_name(body.file.filename))}"
            return JSONResponse({"translatedFileUrl": f"{request.base_url}{_FILES[1:]}/{name}"})

    async def download_file(name: str) -> Response:
        """Return a translated document; its name cannot be guessed."""
        document, _, rest = name.partition(".")
        key, _, extension = rest.partition(".")
        job, path = await services.documents.result(Handle(document, key), None)
        if extension != extension_of(result_name(job.data.name)):
            raise DocumentNotFound(document)
        return file_response(job, path)

    body = described_body(FileBody, MULTIPART, example={"source": "en", "target": "fr"})
    # Without a dependency on a key: it is in the body, or in the name of the file.
    routes.add(
        *("POST", "/translate_file", translate_file, TranslatedFile, OF_A_BODY),
        extra=body,
        needs_key=False,
    )
    routes.add(
        *("GET", _FILES + "/{name}", download_file, None, (404, *OF_ANY_ROUTE)),
        content=RESULT,
        needs_key=False,
        response_class=Response,
    )


async def _finished(services: Services, handle: Handle) -> None:
    """Wait for a document; delete it if the client disconnects."""
    is_done = False
    try:
        await services.documents.finished(handle, current_account().key)
        is_done = True
    finally:
        if not is_done:
            await services.documents.remove(handle.id)
