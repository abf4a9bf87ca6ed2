"""Serves `POST /v2/translate`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fastapi.responses import JSONResponse

from serving.access.account import current_account
from serving.api.deepl.answers import Translations
from serving.api.deepl.languages import source_name
from serving.api.deepl.protocol import OF_A_BODY, PROTOCOL
from serving.api.deepl.translate_body import LISTS, TextsBody
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.reading.fields import reads_json_or_form
from serving.api.http.services import Services
from serving.detection.choice import Chosen, chosen_translator
from serving.glossaries.entries import Pair
from serving.pipelines.cards import ModelCard
from serving.pipelines.translation.deltas import TranslationStream
from serving.pipelines.translation.job import GlossaryEntry, Translation, TranslationJob
from serving.text.formatting import formatted_as

_TAG_HANDLING_VERSION = "v2"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Translates with the entries of a glossary that the texts need; it is a `Translator`."""

    chosen: Chosen
    entries: tuple[GlossaryEntry, ...]

    @property
    def card(self) -> ModelCard:
        return self.chosen.card

    async def translate(self, job: TranslationJob) -> Translation:
        return await self.chosen.translate(replace(job, glossary=self.entries))

    def stream(self, job: TranslationJob) -> TranslationStream:
        return self.chosen.stream(replace(job, glossary=self.entries))


async def _prepared(services: Services, body: TextsBody) -> Prepared:
    chosen = await chosen_translator(services, body.text, body.source_lang, body.target_lang)
    pair = Pair.of(body.source_lang or "", body.target_lang)
    owner = current_account().key
    entries = await services.glossaries.occurring(owner, body.glossaries, pair, body.text)
    return Prepared(chosen, entries)


async def _answer(call: Call[TextsBody, Prepared]) -> JSONResponse:
    translation = await call.model.translate(call.job)
    return JSONResponse({"translations": list(_described(call, translation))})


def _described(
    call: Call[TextsBody, Prepared], translation: Translation
) -> Iterator[dict[str, Any]]:
    """Describe each text's translation; leave out what was not asked for."""
    body, of_all = call.body, {}
    if body.model_type is not None:
        of_all["model_type_used"] = body.model_type_used
    if body.tag_handling is not None:
        of_all["tag_handling_version"] = body.tag_handling_version or _TAG_HANDLING_VERSION
    sources = call.model.chosen.sources
    for text, source, translated in zip(body.text, sources, translation.texts, strict=True):
        yield {
            "detected_source_language": source_name(source.language),
            "text": formatted_as(text, translated) if body.preserve_formatting else translated,
            "billed_characters": len(text),
            **of_all,
        }


TRANSLATE = Endpoint(
    protocol=PROTOCOL,
    path="/translate",
    name="deepl_translate",
    description="Translate texts.",
    body=TextsBody,
    reader=reads_json_or_form(*LISTS),
    find_model=_prepared,
    answer=_answer,
    answer_type=Translations,
    example={"text": ["A dog runs."], "source_lang": "EN", "target_lang": "FR"},
    statuses=OF_A_BODY,
)
