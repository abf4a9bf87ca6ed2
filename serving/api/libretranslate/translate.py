"""`POST /translate`: its body, with LibreTranslate's fields and ours, its model and its answer.

The body is JSON, a form or the query. Therefore numbers may be written as text, and lists and
objects as JSON in text. Every field has an effect or is refused by name.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse, Response
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    field_validator,
)

from serving.api.http.attention import (
    AttentionQueryFields,
    check_size,
    describe_maps,
    parse_queries,
)
from serving.api.http.bodies import (
    DecodingFields,
    RequestBody,
    option_field,
    reads_all,
    translation_field,
)
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.memories import DEFAULT_THRESHOLD, describe_segments, find_memory
from serving.api.http.openapi import describe_events
from serving.api.http.quality import describe_quality
from serving.api.http.services import Services
from serving.api.http.streams import EventStream, encode_events, wait_for_first
from serving.api.libretranslate.protocol import PROTOCOL, Translated, describe_detection
from serving.errors import RequestError
from serving.observability.metrics import Outcome
from serving.pipelines.decoding import DEFAULT_BEAMS, DEFAULT_DECODING, Decoding
from serving.pipelines.routing import RoutedTranslator, route_texts
from serving.pipelines.translation.job import (
    AlignedWords,
    GlossaryEntry,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.pipelines.translation.options import TRANSLATION_OPTIONS
from serving.requests.parameters import MAX_BEAMS, OPTIONS, TEMPERATURE, Choices, SamplingParams
from serving.requests.request import FinishReason
from serving.text.checks import (
    check_text,
    check_texts,
)
from serving.text.language_identification import is_explicit
from serving.text.markup.tokens import Markup, MarkupKind

MAX_TERMS = 256  # of a request; more belong into a glossary that is stored (`/v3/glossaries`)
MAX_TERM_TRANSLATIONS = 16
MAX_TERM_CHARACTERS = 256
# Fields that are numbers.
_NUMBERS = (
    *(name for name, option in OPTIONS.items() if not isinstance(option.values, Choices)),
    *("alternatives", "max_new_tokens", "memory_threshold", "priority", "timeout_seconds"),
)
# A request that gives none of these fields is decoded greedily.
_DECODING_FIELDS = frozenset(
    {
        *DecodingFields.model_fields,
        *("alternatives", "alternatives_at_prefix", "coverage_penalty", "max_new_tokens"),
    }
)

# The fields of the engine and the pipelines, and their names in this protocol.
FIELD_NAMES = {
    "forced_ids": "target_prefix",
    "attention_queries": "return_attention",
    "num_hypotheses": "alternatives",
    "source_ids": "q",
    "text": "q",
    "translation_memory_id": "memory",
}


def _from_json(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


class TranslateBody(DecodingFields, RequestBody):
    """LibreTranslate's own fields are q, source, target, format, alternatives, api_key and secret.
    secret is not used, nor is api_key if the server needs no keys. All other fields are
    optional; without them decoding uses the model's recommended values, or is greedy.
    finish_reasons are returned with scores, with a glossary, with max_new_tokens, and where a
    translation ended by its limit of tokens.
    """

    model_config = ConfigDict(extra="forbid")

    q: str | list[str]
    """The text, or a list of texts."""
    source: str
    """Its language, by any of its codes: en finds a model's eng_Latn or en_XX. "auto" is identified
    for each text, among the target and the languages that can be translated into it. What is in the
    target language stays as it is."""
    target: str
    """The language to translate into, by any of its codes."""
    format: Literal["text", "html"] = "text"
    """In html, tags stay with the translations of their words."""
    alternatives: int = translation_field("alternatives")
    api_key: Any = None
    """The key, if the server needs one."""
    secret: Any = None
    """Without effect."""
    model: str | None = None
    """The name of a model of `/v1/models`; without it, the default one for the languages."""
    coverage_penalty: float = option_field(OPTIONS["coverage_penalty"])
    bad_words: Annotated[list[str], BeforeValidator(_from_json)] = Field(default_factory=list)
    """Texts that are never written."""
    max_new_tokens: int | None = None
    """Ends the translation of each sentence after this many tokens."""
    target_prefix: str = translation_field("target_prefix")
    alternatives_at_prefix: bool = translation_field("alternatives_at_prefix")
    glossary: Annotated[dict[str, str | list[str]], BeforeValidator(_from_json)] = Field(
        default_factory=dict
    )
    """Source terms with their translation, or with several to choose from."""
    memory: str | None = None
    """The id of a translation memory, whose translations are used where it has a segment, or one
    that is alike. Returns where each segment came from."""
    memory_threshold: Annotated[int, Field(ge=0, le=100)] = DEFAULT_THRESHOLD
    """How much a segment must be like that of the memory, in percent."""
    placeholders: Annotated[bool | list[str], BeforeValidator(_from_json)] = False
    """Exact texts that stay as they are, such as __count__, or true for all that look like {name},
    %s or <b>."""
    replace_unknown: bool = translation_field("replace_unknown")
    alignments: bool = translation_field("alignments")
    return_attention: Annotated[
        bool | list[str | AttentionQueryFields], BeforeValidator(_from_json)
    ] = False
    """true returns for each sentence how much its target tokens and words attend to those of the
    source: the mean over `attention_heads`. A list returns attention maps of the tokens of each
    sentence: "cross" (target over source), "encoder" (source over itself) or "decoder" (target over
    itself), by name for the mean over all layers and heads, or as an object {"kind": ..., "layers":
    [...], "heads": [...], "mean": ...}."""
    attention_heads: Annotated[list[StrictInt], BeforeValidator(_from_json)] = Field(
        default_factory=list
    )
    """Heads whose attention is returned and aligns words, numbered through the decoder's layers; by
    default those that align best."""
    return_scores: bool = translation_field("return_scores")
    quality: bool = translation_field("quality")
    protect: bool = translation_field("protect")
    pivot: bool = True
    """If no model has the pair of languages, two may translate it together."""
    stream: bool = False
    """Answers with server-sent events."""

    @field_validator(*_NUMBERS, mode="before")
    @classmethod
    def _refuse_boolean(cls, value: Any) -> Any:
        """Refuse booleans for numbers: pydantic would read `true` as 1."""
        if isinstance(value, bool):
            raise ValueError("input should not be true or false")
        return value

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.q,) if isinstance(self.q, str) else tuple(self.q)

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))

    def check(self, max_characters: int) -> None:
        check_texts("q", self.texts, max_characters)

    def job(self, request_id: str) -> TranslationJob:
        """Return the job, with the options that the request gives."""
        explicit = self.model_fields_set
        options = {
            option.job_field: getattr(self, option.name)
            for option in TRANSLATION_OPTIONS.values()
            if option.name in explicit
        }
        options["protection"] = self.protect
        if self.target_prefix:
            check_text("target_prefix", self.target_prefix, MAX_TERMS * MAX_TERM_CHARACTERS)
        if self.alternatives_at_prefix and not self.alternatives:
            raise RequestError("alternatives_at_prefix", True, "needs alternatives, at least 1")
        if self.glossary:
            options["glossary"] = tuple(self._glossary_entries())
        if self.placeholders is not False:
            options["placeholders"] = self._placeholder_texts()
        if self.return_attention is True:
            options["returns_attention"] = True
        elif self.return_attention:
            options["attention_queries"] = parse_queries(self.return_attention)
        if self.format == "html":
            options["markup"] = Markup(MarkupKind.HTML)
        decoding = DEFAULT_DECODING if explicit.isdisjoint(_DECODING_FIELDS) else self._decoding()
        job = TranslationJob(request_id, self.texts, self.source, self.target, decoding, **options)
        if self.attention_heads:
            job = replace(job, attention_heads=tuple(self.attention_heads))
            if not job.needs_attention:
                message = "needs return_attention, alignments, placeholders or replace_unknown"
                raise RequestError("attention_heads", self.attention_heads, message)
        return job

    def _decoding(self) -> Decoding:
        width = self._width()
        sampling = self.sampling(default_temperature=0.0)
        self._check_sampling(sampling, width)
        return Decoding(
            sampling=sampling,
            beam=self.beam(width, self._num_hypotheses(width)),
            processors=self.processors(),
            bad_words=self.checked_bad_words(),
            max_new_tokens=self.max_new_tokens,
            priority=self.priority,
            timeout_seconds=self.timeout_seconds,
        )

    def _width(self) -> int | None:
        """Return the beam width that is asked for or needed; None without a search."""
        if self.num_beams is not None:
            return self.num_beams
        return max(DEFAULT_BEAMS, self._fewest_beams) if self._searches_alternatives else None

    def _search_arguments(self) -> dict[str, Any]:
        return {
            "searches": self.num_beams is not None or self._width() is not None,
            "min_beams": self._fewest_beams if self._searches_alternatives else 1,
        }

    @property
    def _fewest_beams(self) -> int:
        """Return two beams for each translation, because some have the same text."""
        return min(2 * (self.alternatives + 1), MAX_BEAMS)

    @property
    def _searches_alternatives(self) -> bool:
        return self.alternatives > 0 and not self.alternatives_at_prefix

    def _num_hypotheses(self, width: int | None) -> int:
        """Return the number of hypotheses: all, if alternatives are wanted."""
        if width is None or not self._searches_alternatives:
            return 1
        if self.alternatives >= width:
            message = f"must be less than num_beams, {width}"
            raise RequestError("alternatives", self.alternatives, message)
        return width

    def _check_sampling(self, sampling: SamplingParams, width: int | None) -> None:
        if sampling.temperature == 0 and width is None:
            for name, value in sampling.filters.items():
                raise RequestError(name, value, f"needs {TEMPERATURE}")
        if sampling.temperature > 0 and width is not None and self.num_beams is None:
            message = "cannot be combined with alternatives, which needs beam search"
            raise RequestError("temperature", sampling.temperature, message)

    def _glossary_entries(self) -> Iterator[GlossaryEntry]:
        if len(self.glossary) > MAX_TERMS:
            raise RequestError("glossary", len(self.glossary), f"at most {MAX_TERMS} terms")
        for term, translations in self.glossary.items():
            texts = [translations] if isinstance(translations, str) else translations
            if not 1 <= len(texts) <= MAX_TERM_TRANSLATIONS:
                message = f"must have between 1 and {MAX_TERM_TRANSLATIONS} translations a term"
                raise RequestError("glossary", {term: len(texts)}, message)
            for text in (term, *texts):
                _check_term("glossary", text)
            yield GlossaryEntry(term.strip(), tuple(texts))

    def _placeholder_texts(self) -> tuple[str, ...]:
        """Return the texts that stay as they are; none for all that look like placeholders."""
        if isinstance(self.placeholders, bool):
            return ()
        if not 1 <= len(self.placeholders) <= MAX_TERMS:
            message = f"must be true, or between 1 and {MAX_TERMS} texts"
            raise RequestError("placeholders", len(self.placeholders), message)
        for text in self.placeholders:
            _check_term("placeholders", text)
        return tuple(self.placeholders)


def _check_term(field: str, text: str) -> None:
    if not text.strip() or len(text) > MAX_TERM_CHARACTERS:
        message = f"must have between 1 and {MAX_TERM_CHARACTERS} characters each"
        raise RequestError(field, text, message)
    check_text(field, text, MAX_TERM_CHARACTERS)


_EVENTS = (
    "With `stream`: pieces, as {index, sentence, delta}, the last of a sentence with its "
    "finish_reason; then the whole answer; or at any time {error}."
)


async def _find_translator(services: Services, body: TranslateBody) -> RoutedTranslator:
    languages = (body.source, body.target)
    translator = await route_texts(services, body.texts, *languages, body.model, body.pivot)
    if not body.memory:
        return translator
    source = body.source if is_explicit(body.source) else None
    memory = await find_memory(services, body.memory, body.memory_threshold, source, body.target)
    return replace(translator, memory=memory)


async def _answer(call: Call[TranslateBody, RoutedTranslator]) -> Response:
    if not call.body.stream:
        translation = await call.model.run(call.job)
        return JSONResponse(_describe_translation(call.body, call.model, translation))
    items = await call.resources.enter_async_context(aclosing(call.model.stream(call.job)))
    first = await wait_for_first(items, call.resources)
    call.tracked.outcome = Outcome.CANCELLED  # until the last event
    events = encode_events(_values(call, first, items), call.tracked, call.protocol)
    return EventStream(events, call.resources.pop_all())


TRANSLATE = Endpoint(
    protocol=replace(PROTOCOL, field_names=FIELD_NAMES),
    path="/translate",
    name="translate",
    description="Translate a text or a list of texts; with `stream`, as server-sent events.",
    body=TranslateBody,
    reader=reads_all(repeated="q"),
    find_model=_find_translator,
    billed=lambda body, translator: sum(translator.billed),
    answer=_answer,
    answer_type=Translated,
    example={"q": "A dog runs.", "source": "en", "target": "fr"},
    other_answers=describe_events(_EVENTS),
)


async def _values(
    call: Call[TranslateBody, RoutedTranslator],
    first: Awaitable[TranslationDelta | Translation],
    rest: TranslationStream,
) -> AsyncGenerator[dict[str, Any], None]:
    yield _value(call, await first)
    async for item in rest:
        yield _value(call, item)


def _value(
    call: Call[TranslateBody, RoutedTranslator], item: TranslationDelta | Translation
) -> dict[str, Any]:
    if isinstance(item, Translation):
        return _describe_translation(call.body, call.model, item)
    end = {"finish_reason": item.reason} if item.reason else {}
    return {"index": item.text, "sentence": item.sentence, "delta": item.piece, **end}


def _describe_translation(
    body: TranslateBody, translator: RoutedTranslator, translation: Translation
) -> dict[str, Any]:
    """Return the JSON of the answer; see `Translated`."""
    answer: dict[str, list[Any]] = {"translatedText": list(translation.texts)}
    renderings = translation.renderings
    if not is_explicit(body.source):
        answer["detectedLanguage"] = list(map(describe_detection, translator.sources))
    if any(translator.pivots):
        answer["pivot"] = list(translator.pivots)
    if body.alternatives:
        answer["alternatives"] = [[other.text for other in others] for _, *others in renderings]
    if body.return_scores:
        answer["scores"] = [[rendering.score for rendering in ranked] for ranked in renderings]
    reasons = [best.reason for best, *_ in renderings]
    gives_reasons = body.return_scores or body.glossary or body.max_new_tokens is not None
    if gives_reasons or FinishReason.LENGTH in reasons:
        answer["finish_reasons"] = reasons
    if body.quality:
        answer["quality"] = [describe_quality(best) for best, *_ in renderings]
    if body.alignments:
        answer["alignments"] = [_alignment(best.alignment) for best, *_ in renderings]
    if body.memory:
        answer["segments"] = [describe_segments(best.origins) for best, *_ in renderings]
    if body.return_attention is True:
        answer["attention"] = [list(map(asdict, best.attention)) for best, *_ in renderings]
    elif body.return_attention:
        check_size(
            attention_map
            for best, *_ in renderings
            for sentence in best.attention_maps
            for attention_map in sentence
        )
        answer["attention"] = [
            list(map(describe_maps, best.attention_maps)) for best, *_ in renderings
        ]
    if isinstance(body.q, str):
        return {name: values[0] for name, values in answer.items()}
    return answer


def _alignment(aligned: AlignedWords | None) -> dict[str, Any]:
    """Return the JSON of an alignment; a text without words has an empty one."""
    aligned = aligned or AlignedWords((), (), ())
    return {
        "source": aligned.source_words,
        "target": aligned.target_words,
        "pharaoh": aligned.pharaoh,
    }
