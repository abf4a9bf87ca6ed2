"""`POST /v2/translate`: its body, its model and its answer.

Every field has an effect, is documented as having none, or is refused by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr

from serving.api.deepl.protocol import (
    BODY_STATUSES,
    PROTOCOL,
    V1_PROTOCOL,
    Translations,
    source_name,
)
from serving.api.http.bodies import (
    NoOpValues,
    Refusals,
    RequestBody,
    reads_json_or_form,
    translation_field,
)
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.memories import DEFAULT_THRESHOLD, describe_segments, find_memory
from serving.api.http.quality import describe_quality
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.glossaries.entries import GlossaryPair
from serving.observability.request_stats import current_key
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import DEFAULT_BEAMS, Decoding, resolve_decoding
from serving.pipelines.routing import RoutedTranslator, route_texts
from serving.pipelines.translation.job import (
    GlossaryEntry,
    Translation,
    TranslationJob,
    TranslationStream,
)
from serving.requests.parameters import NUM_BEAMS
from serving.requests.request import FinishReason
from serving.text.checks import (
    check_text,
    check_texts,
)
from serving.text.formatting import format_like_source
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.sentences import Splitting

MAX_TEXTS = 50  # of one request, as in DeepL
MAX_GLOSSARIES = 5  # of one request, as in DeepL
LISTS = ("text", "glossary_ids", "splitting_tags", "non_splitting_tags", "ignore_tags")
STYLE_REFUSALS: Refusals = {
    "custom_instructions": "models here translate, they do not follow instructions",
    "style_id": "models here translate, they have no rules of style",
}
_SPLITTING = {
    "0": Splitting.NONE,
    "1": Splitting.LINES,
    "nonewlines": Splitting.NO_NEWLINES,
}
_NEEDS_TAGS = ("tag_handling_version", *LISTS[2:])


def _split_at_commas(value: Any) -> Any:
    """Split a text at commas; return other values as they are, to be refused."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return value
    return [part.strip() for text in value for part in text.split(",") if part.strip()]


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


NameList = Annotated[list[str], BeforeValidator(_split_at_commas)]


class TextsBody(RequestBody):
    """DeepL's fields.

    source_lang: by default the language of each text is identified; what is in the target language
    stays as it is, and is not billed. context: without effect.
    formality: not supported, so only default, prefer_more and prefer_less are accepted. model_type:
    latency_optimized decodes greedily, the others use beam search; by default the model's
    recommended values. preserve_formatting: translations begin with the same case and end with the
    same punctuation as their texts. glossary_id, glossary_ids: need source_lang; if several have a
    term the first counts. tag_handling_version: v1 and v2 are the same. show_billed_characters,
    enable_beta_languages: without effect; billed characters are always returned.
    translation_memory_id: of a memory, whose units are used that are at least
    translation_memory_threshold percent alike. quality: an extension. custom_instructions,
    style_id: refused.
    """

    model_config = ConfigDict(extra="forbid")
    no_op_values: ClassVar[NoOpValues] = {
        "custom_instructions": ([],),
        "glossary_id": ("",),
        "source_lang": ("",),
        "style_id": ("",),
        "tag_handling": ("",),
        "translation_memory_id": ("",),
    }
    refusals: ClassVar[Refusals] = STYLE_REFUSALS
    _generation: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    text: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    target_lang: str
    source_lang: str | None = None
    context: str = ""
    split_sentences: Literal["0", "1", "nonewlines"] | None = None
    preserve_formatting: bool = False
    formality: Annotated[
        Literal["default", "more", "less", "prefer_more", "prefer_less"],
        BeforeValidator(_lower),
    ] = "default"
    model_type: (
        Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"] | None
    ) = None
    glossary_id: str | None = None
    glossary_ids: Annotated[NameList, Field(max_length=MAX_GLOSSARIES)] = Field(
        default_factory=list
    )
    tag_handling: MarkupKind | None = None
    tag_handling_version: Literal["v1", "v2"] | None = None
    outline_detection: bool = True
    splitting_tags: NameList = Field(default_factory=list)
    non_splitting_tags: NameList = Field(default_factory=list)
    ignore_tags: NameList = Field(default_factory=list)
    show_billed_characters: bool = True
    enable_beta_languages: bool = False
    translation_memory_id: str | None = None
    translation_memory_threshold: Annotated[int, Field(ge=0, le=100)] = DEFAULT_THRESHOLD
    quality: bool = translation_field("quality")

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.text))

    @property
    def glossaries(self) -> list[str]:
        return [self.glossary_id] if self.glossary_id is not None else self.glossary_ids

    @property
    def model_type_used(self) -> str:
        """Return the model type that describes the decoding."""
        is_quick = self.model_type == "latency_optimized"
        return "latency_optimized" if is_quick else "quality_optimized"

    def check(self, max_characters: int) -> None:
        check_texts("text", self.text, max_characters)
        check_text("context", self.context, max_characters)
        if self.formality in ("more", "less"):
            message = f"Target language '{self.target_lang}' doesn't support formality"
            raise RequestError("formality", self.formality, message)
        if self.glossaries and self.source_lang is None:
            raise RequestError("source_lang", None, "is required with a glossary")
        if self.glossary_id is not None and self.glossary_ids:
            raise RequestError("glossary_ids", self.glossary_ids, "needs glossary_id to be absent")
        self._check_tags()

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        body = self.model_copy()
        body._generation = generation
        return body

    def job(self, request_id: str) -> TranslationJob:
        return TranslationJob(
            request_id=request_id,
            texts=tuple(self.text),
            source=self.source_lang or "auto",
            target=self.target_lang,
            decoding=self._decoding(),
            markup=self._markup(),
            protection=True,
            splitting=self._splitting(),
            returns_quality=self.quality,
        )

    def _decoding(self) -> Decoding:
        """Return a beam search where quality is asked for."""
        recommended = dict(self._generation)
        if self.model_type is None:
            return resolve_decoding({}, recommended)
        num_beams = recommended.pop(NUM_BEAMS, 1)
        if self.model_type_used == "latency_optimized":
            return resolve_decoding({}, recommended)
        return resolve_decoding({NUM_BEAMS: max(DEFAULT_BEAMS, num_beams)}, recommended)

    def _markup(self) -> Markup | None:
        if self.tag_handling is None:
            return None
        return Markup(
            self.tag_handling,
            frozenset(self.splitting_tags),
            frozenset(self.non_splitting_tags),
            frozenset(self.ignore_tags),
            self.outline_detection,
        )

    def _splitting(self) -> Splitting:
        if self.split_sentences is not None:
            return _SPLITTING[self.split_sentences]
        is_html = self.tag_handling is MarkupKind.HTML
        return Splitting.NO_NEWLINES if is_html else Splitting.SENTENCES

    def _check_tags(self) -> None:
        if self.tag_handling is not None:
            return
        for name in _NEEDS_TAGS:
            if value := getattr(self, name):
                raise RequestError(name, value, "needs tag_handling")
        if not self.outline_detection:
            raise RequestError("outline_detection", False, "needs tag_handling")


_TAG_HANDLING_VERSION = "v2"


@dataclass(frozen=True, slots=True)
class GlossaryTranslator:
    """A translator with the glossary entries that occur in the texts."""

    routed: RoutedTranslator
    entries: tuple[GlossaryEntry, ...]

    @property
    def card(self) -> ModelCard:
        return self.routed.card

    async def run(self, job: TranslationJob) -> Translation:
        return await self.routed.run(replace(job, glossary=self.entries))

    def stream(self, job: TranslationJob) -> TranslationStream:
        return self.routed.stream(replace(job, glossary=self.entries))


async def _find_translator(services: Services, body: TextsBody) -> GlossaryTranslator:
    routed = await route_texts(services, body.text, body.source_lang, body.target_lang)
    pair = GlossaryPair.from_codes(body.source_lang or "", body.target_lang)
    owner = current_key()
    entries = await services.glossaries.occurring(owner, body.glossaries, pair, body.text)
    memory = await find_memory(
        services,
        body.translation_memory_id,
        body.translation_memory_threshold,
        body.source_lang,
        body.target_lang,
    )
    return GlossaryTranslator(replace(routed, memory=memory), entries)


async def _answer(call: Call[TextsBody, GlossaryTranslator]) -> JSONResponse:
    translation = await call.model.run(call.job)
    return JSONResponse({"translations": list(_describe_translations(call, translation))})


def _describe_translations(
    call: Call[TextsBody, GlossaryTranslator], translation: Translation
) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each translation."""
    body = call.body
    of_all: dict[str, Any] = {}
    if body.model_type is not None:
        of_all["model_type_used"] = body.model_type_used
    if body.tag_handling is not None:
        of_all["tag_handling_version"] = body.tag_handling_version or _TAG_HANDLING_VERSION
    routed = call.model.routed
    for text, source, billed, (best, *_) in zip(
        body.text, routed.sources, routed.billed, translation.renderings, strict=True
    ):
        if routed.memory is not None:
            of_all["segments"] = describe_segments(best.origins)
        yield {
            "detected_source_language": source_name(source.language),
            "text": format_like_source(text, best.text) if body.preserve_formatting else best.text,
            "billed_characters": billed,
            **of_all,
            **({"quality": describe_quality(best)} if body.quality else {}),
            **({"finish_reason": best.reason} if best.reason is FinishReason.LENGTH else {}),
        }


TRANSLATE = Endpoint(
    protocol=PROTOCOL,
    path="/translate",
    name="deepl_translate",
    description="Translate texts.",
    body=TextsBody,
    reader=reads_json_or_form(*LISTS),
    find_model=_find_translator,
    billed=lambda body, translator: sum(translator.routed.billed),
    answer=_answer,
    answer_type=Translations,
    example={"text": ["A dog runs."], "source_lang": "EN", "target_lang": "FR"},
    statuses=BODY_STATUSES,
)


class KeyedTextsBody(TextsBody):
    """The fields of DeepL's first version, which OmegaT speaks: the key is one of them."""

    auth_key: Any = None


TRANSLATE_V1 = replace(
    TRANSLATE,
    protocol=V1_PROTOCOL,
    body=KeyedTextsBody,
)
