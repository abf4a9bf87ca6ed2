"""Serves `POST /translate_file` and the files that come of it."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.account import current_account
from serving.api.http.bodies import FieldsBody
from serving.api.http.openapi import MULTIPART, OF_A_BODY, Responses, described_body
from serving.api.http.services import Services
from serving.api.http.uploads import File, file_response, queued, uploaded
from serving.api.libretranslate.protocol import PROTOCOL
from serving.documents.formats.registry import extension_of, result_name
from serving.errors import DocumentNotFound
from serving.jobs.documents import Handle

_FILES = "/download_file"


class FileBody(FieldsBody):
    """A document. source: `auto` is identified. model: ours, as in `/translate`."""

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
_BODY = described_body(FileBody, MULTIPART, example={"source": "en", "target": "fr"})
_RESULT: Responses = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": "The translated document.",
    }
}


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("LibreTranslate")

    @routes.post(
        "/translate_file",
        responses=PROTOCOL.responses(TranslatedFile, OF_A_BODY),
        openapi_extra=_BODY,
    )
    async def translate_file(request: Request) -> JSONResponse:
        """Translate a document, and say where it can be fetched until it expires."""
        async with uploaded(request, services, PROTOCOL, FileBody) as body:
            handle = await queued(services, body.file, body.source, body.target, body.model)
            await _finished(services, handle)
            name = f"{handle.id}.{handle.key}.{extension_of(result_name(body.file.filename))}"
            return JSONResponse({"translatedFileUrl": f"{request.base_url}{_FILES[1:]}/{name}"})

    @routes.get(
        _FILES + "/{name}",
        response_class=Response,
        responses=PROTOCOL.responses(None, (404, 500, 503)) | _RESULT,
    )
    async def download_file(name: str) -> Response:
        """Return a translated document; nobody can guess its name."""
        document, _, rest = name.partition(".")
        key, _, extension = rest.partition(".")
        job, path = await services.documents.result(Handle(document, key), None)
        if extension != extension_of(result_name(job.data.name)):
            raise DocumentNotFound(document)
        return file_response(job, path)

    return routes


async def _finished(services: Services, handle: Handle) -> None:
    """Wait for a document; without anybody who waits for it nothing is translated."""
    is_done = False
    try:
        await services.documents.finished(handle, current_account().key)
        is_done = True
    finally:
        if not is_done:
            await services.documents.remove(handle.id)
