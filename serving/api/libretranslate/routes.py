"""Routes of LibreTranslate's protocol: translations, documents, languages and settings.

Bodies are JSON or forms; fields may also be in the query.
"""

import asyncio
from collections import Counter
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import FieldsBody, reads_all
from serving.api.http.endpoint import SimpleEndpoint
from serving.api.http.openapi import BODY_STATUSES, COMMON_STATUSES, MULTIPART, DescribedBody
from serving.api.http.routing import ProtocolRoute, Routes
from serving.api.http.services import Services
from serving.api.http.uploads import (
    RESULT,
    File,
    QualityThreshold,
    base_url,
    file_response,
    queue_document,
    receive_upload,
)
from serving.api.http.usage import add_usage
from serving.api.libretranslate.protocol import (
    PROTOCOL,
    DetectedLanguage,
    FrontendSettings,
    Language,
    describe_detection,
)
from serving.api.libretranslate.translate import TRANSLATE
from serving.documents.formats.registry import FORMATS, file_extension, result_name
from serving.errors import DocumentNotFound
from serving.jobs.documents import Handle
from serving.observability.request_stats import current_key
from serving.pipelines.cards import ModelCard
from serving.pipelines.routing import detectable_languages, targets_by_source
from serving.text.checks import check_text
from serving.text.language_identification import AUTO
from serving.text.languages import language_name

_FILES = "/download_file"
_MAX_GUESSES = 5
_PAGE_DELAY_MILLISECONDS = 500  # from the last key press to a translation
_MIN_CONFIDENCE = 1.0  # percent; less likely guesses are left out, except the first


class DetectBody(FieldsBody):
    """The body of `/detect`. api_key, secret: as in `POST /translate`."""

    model_config = ConfigDict(extra="forbid")

    q: str
    api_key: Any = None
    secret: Any = None


class FileBody(FieldsBody):
    """A document to translate. source: `auto` is identified. model: an extension, as in
    `/translate`. quality_threshold: an extension, from 0 to 1; of .po and XLIFF, translations that
    seem worse are marked for review, and only these.
    """

    model_config = ConfigDict(extra="forbid")

    file: File
    source: str
    target: str
    model: str | None = None
    quality_threshold: QualityThreshold | None = None
    api_key: Any = None
    secret: Any = None


class TranslatedFile(TypedDict):
    translatedFileUrl: str


async def _detect(services: Services, body: DetectBody) -> list[dict[str, Any]]:
    check_text("q", body.q, services.limits.max_characters)
    languages = await detectable_languages(services.catalog)
    guesses = await asyncio.to_thread(services.identifier.identify, body.q, languages)
    first, *others = map(describe_detection, guesses)
    likely = [guess for guess in others if guess["confidence"] >= _MIN_CONFIDENCE]
    return [first, *likely][:_MAX_GUESSES]


DETECT = SimpleEndpoint(
    protocol=PROTOCOL,
    path="/detect",
    name="detect",
    description="Identify the language of a text, among those that models here read or write.",
    body=DetectBody,
    reader=reads_all(repeated="q"),
    answer=_detect,
    answer_type=list[DetectedLanguage],
    example={"q": "A dog runs."},
)
ENDPOINTS = (TRANSLATE, DETECT)


def routes(services: Services) -> list[ProtocolRoute]:
    async def languages(request: Request) -> JSONResponse:
        """List languages to translate from, each with those that it can be translated into."""
        return JSONResponse(_describe_languages(await services.catalog.translator_cards()))

    async def frontend_settings(request: Request) -> JSONResponse:
        """Return the settings of a page that translates."""
        return JSONResponse(_settings(services, await services.catalog.translator_cards()))

    routes = Routes(PROTOCOL, "LibreTranslate", services.authenticator)
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)
    TRANSLATE.add_to(routes, services, "GET", is_listed=False)  # OmegaT's plugin asks so
    add_usage(routes, services, "libretranslate_usage")
    free: dict[str, Any] = {"statuses": COMMON_STATUSES, "key_check": KeyCheck.NONE}
    routes.add("GET", "/languages", languages, list[Language], **free)
    routes.add("GET", "/frontend/settings", frontend_settings, FrontendSettings, **free)
    routes.add_refusal(
        *("/suggest", 403, "suggestions are not kept on this server"),
        name="suggest",
        description="Refuse a suggestion: this server keeps none.",
    )
    _add_files(routes, services)
    return routes.routes


def _add_files(routes: Routes, services: Services) -> None:
    async def translate_file(request: Request) -> JSONResponse:
        """Translate a document, and return a link to it that works until it expires."""
        async with receive_upload(request, services, PROTOCOL, FileBody) as body:
            languages, threshold = (body.source, body.target), body.quality_threshold
            handle = await queue_document(
                services, body.file, *languages, body.model, quality_threshold=threshold
            )
            await _wait_for_document(services, handle)
            name = f"{handle.id}.{handle.key}.{file_extension(result_name(body.file.filename))}"
            return JSONResponse({"translatedFileUrl": f"{base_url(request)}{_FILES[1:]}/{name}"})

    async def download_file(request: Request, name: str) -> Response:
        """Return a translated document; its name cannot be guessed."""
        document, _, rest = name.partition(".")
        key, _, extension = rest.partition(".")
        handle = Handle(document, key)
        job = await services.documents.translated_job(handle, None)
        if extension != file_extension(result_name(job.data.name)):
            raise DocumentNotFound(document)
        return file_response(*await services.documents.open_result(handle, None))

    body = DescribedBody(FileBody, (MULTIPART,), {"source": "en", "target": "fr"})
    routes.add(
        *("POST", "/translate_file", translate_file, TranslatedFile, BODY_STATUSES),
        body=body,
        key_check=KeyCheck.IN_HANDLER,
    )
    routes.add(
        *("GET", _FILES + "/{name}", download_file, None, (404, *COMMON_STATUSES)),
        content=RESULT,
        key_check=KeyCheck.NONE,
        response_class=Response,
    )


async def _wait_for_document(services: Services, handle: Handle) -> None:
    """Wait for a document; delete it if the client disconnects."""
    try:
        await services.documents.wait_until_finished(handle, current_key())
    except BaseException:
        await services.documents.remove(handle.id)
        raise


def _describe_languages(cards: list[ModelCard]) -> list[dict[str, Any]]:
    """Return the languages to translate from, each with its target languages.

    A name that several languages share is followed by the code.
    """
    targets = targets_by_source(cards)
    names = {code: language_name(code) for code in sorted(targets)}
    counts = Counter(names.values())
    return [
        {
            "code": code,
            "name": name if counts[name] == 1 else f"{name} ({code})",
            "targets": sorted(targets[code]),
        }
        for code, name in names.items()
    ]


def _settings(services: Services, cards: list[ModelCard]) -> dict[str, Any]:
    """Return the settings that LibreTranslate's page asks for."""
    target = next((target for card in cards for target in card.target_languages), "")
    return {
        "charLimit": services.limits.max_characters,
        "frontendTimeout": _PAGE_DELAY_MILLISECONDS,
        "apiKeys": services.keys is not None,
        "keyRequired": services.keys is not None,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [f".{extension}" for extension in FORMATS],
        "language": {
            "source": {"code": AUTO, "name": "Auto Detect"},
            "target": {"code": target, "name": language_name(target)},
        },
    }
