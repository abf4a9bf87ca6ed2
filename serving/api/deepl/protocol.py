"""DeepL's protocol: paths, errors, keys, names of languages, and types of answers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.memories import TranslatedSegment
from serving.api.http.protocol import Protocol, message_of, reason_of
from serving.api.http.quality import TextQuality
from serving.errors import KeyRefused, QuotaExceeded, RequestError
from serving.glossaries.entries import GlossaryPair
from serving.pipelines.cards import ModelCard
from serving.pipelines.routing import targets_by_source
from serving.requests.request import FinishReason
from serving.text.languages import UNDETERMINED, language_name, match_codes, primary_language

# The fields of the engine and the pipelines, and their names in this protocol.
FIELD_NAMES = {
    "glossary": "glossary_id",
    "markup": "tag_handling",
    "source": "source_lang",
    "source_ids": "text",
    "target": "target_lang",
}
# DeepL's messages about these fields; our message is the detail.
_MESSAGES = {
    "entries": "Invalid glossary entries provided",
    "source_lang": "Value for 'source_lang' not supported.",
    "target_lang": "Value for 'target_lang' not supported.",
}
BODY_STATUSES = (400, 404, 413, 415, 429, 456, 500, 503, 504)


class DeepLError(TypedDict):
    """An error. field, reason: extensions, the wrong field and what is wrong with it."""

    message: str
    detail: NotRequired[str]
    field: NotRequired[str]
    reason: NotRequired[str]


def _error_shape(status: int, error: BaseException) -> dict[str, Any]:
    if not isinstance(error, RequestError):
        return {"message": message_of(error)}
    wrong = {"field": error.field, "reason": reason_of(error)}
    if error.field in _MESSAGES and status == 400:
        return {"message": _MESSAGES[error.field], "detail": message_of(error), **wrong}
    return {"message": message_of(error), **wrong}


PROTOCOL = Protocol(
    "deepl",
    "/v2",
    _error_shape,
    DeepLError,
    FIELD_NAMES,
    key_scheme="DeepL-Auth-Key",
    statuses={KeyRefused: 403, QuotaExceeded: 456},
)
V1_PROTOCOL = replace(PROTOCOL, prefix="/v1", key_field="auth_key")
V3_PROTOCOL = replace(PROTOCOL, prefix="/v3")
_VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
    "zh": {"ZH-HANS": "Chinese (simplified)", "ZH-HANT": "Chinese (traditional)"},
}


def source_name(code: str) -> str:
    """Return DeepL's name of a source language."""
    return primary_language(code).upper()


def sources(cards: Sequence[ModelCard]) -> list[dict[str, str]]:
    """Return the languages that can be translated from."""
    codes = [code for code in targets_by_source(cards) if code != UNDETERMINED]
    return [
        {"language": name, "name": language_name(code)}
        for name, code in _codes_by_name(codes).items()
    ]


def targets(cards: Sequence[ModelCard]) -> list[dict[str, str | bool]]:
    """Return the languages that can be translated into. No model supports formality."""
    codes = {code for into in targets_by_source(cards).values() for code in into}
    names = dict(_names_of_targets(codes))
    return [
        {"language": name, "name": names[name], "supports_formality": False}
        for name in sorted(names)
    ]


def glossary_pairs(cards: Sequence[ModelCard]) -> list[GlossaryPair]:
    """Return the pairs of languages that a glossary may have."""
    pairs = {
        GlossaryPair.from_codes(source, target)
        for source, into in targets_by_source(cards).items()
        for target in into
        if source != UNDETERMINED
    }
    return sorted(pairs, key=lambda pair: (pair.source, pair.target))


# The features of languages, by the resources of `/v3/languages`; identifying is of sources alone.
RESOURCES: dict[str, tuple[str, ...]] = {
    "translate_text": ("tag_handling", "glossary", "translation_memory", "auto_detection"),
    "translate_document": ("glossary", "translation_memory", "auto_detection"),
    "glossary": (),
    "translation_memory": (),
}
# What DeepL has besides; no language is for it here.
OTHER_RESOURCES = ("style_rules", "voice", "write")


def languages(cards: Sequence[ModelCard], resource: str) -> list[dict[str, Any]]:
    """Return the languages of a resource; variants of one are targets only."""
    if resource in OTHER_RESOURCES:
        return []
    into: dict[str, str]
    if resource in ("glossary", "translation_memory"):
        pairs = glossary_pairs(cards)
        of = {pair.source: language_name(pair.source) for pair in pairs}
        into = {pair.target: language_name(pair.target) for pair in pairs}
    else:
        of = {language["language"]: language["name"] for language in sources(cards)}
        into = {str(language["language"]): str(language["name"]) for language in targets(cards)}
    return [
        {
            "lang": _bcp_47(code),
            "name": name,
            "usable_as_source": code in of,
            "usable_as_target": code in into,
            "status": "stable",
            "features": {
                feature: {"status": "stable"}
                for feature in RESOURCES[resource]
                if feature != "auto_detection" or code in of
            },
        }
        for code, name in sorted({**into, **of}.items())
    ]


def _bcp_47(name: str) -> str:
    """Return a name in BCP 47's capitals: zh-Hans, en-US."""
    language, *others = name.split("-")
    others = [part.title() if len(part) == 4 else part.upper() for part in others]
    return "-".join((language.lower(), *others))


def _names_of_targets(codes: Iterable[str]) -> Iterator[tuple[str, str]]:
    all_codes = tuple(codes)
    for name, code in _codes_by_name(all_codes).items():
        variants = _VARIANTS.get(primary_language(code), {})
        names = {code: text for code, text in variants.items() if match_codes(code, all_codes)}
        yield from names.items() if names else [(name, language_name(code))]


def _codes_by_name(codes: Iterable[str]) -> dict[str, str]:
    """Return codes by names; several scripts or regions of a language have their whole codes."""
    ordered = sorted({*codes})
    counts = Counter(map(primary_language, ordered))
    return {
        _full_name(code) if counts[primary_language(code)] > 1 else source_name(code): code
        for code in ordered
    }


def _full_name(code: str) -> str:
    _, *others = code.upper().replace("_", "-").split("-")
    return "-".join((source_name(code), *others))


class TranslatedText(TypedDict):
    """model_type_used: if a type was asked for. tag_handling_version: if tags are handled.
    segments, quality: extensions, with a translation memory and if it was asked for.
    finish_reason: an extension: "length", of a translation that ended by its limit of tokens.
    """

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: NotRequired[str]
    tag_handling_version: NotRequired[str]
    segments: NotRequired[list[TranslatedSegment]]
    quality: NotRequired[TextQuality]
    finish_reason: NotRequired[FinishReason]


class Translations(TypedDict):
    translations: list[TranslatedText]


class DeepLLanguage(TypedDict):
    """supports_formality: of targets."""

    language: str
    name: str
    supports_formality: NotRequired[bool]


class ResourceLanguage(TypedDict):
    """A language of a resource, with the features that it has there."""

    lang: str
    name: str
    usable_as_source: bool
    usable_as_target: bool
    status: Literal["stable"]
    features: dict[str, dict[str, str]]


class DeepLUsage(TypedDict):
    """start_time, end_time: of the month that is counted."""

    character_count: int
    character_limit: int
    start_time: str
    end_time: str


class LanguagePair(TypedDict):
    source_lang: str
    target_lang: str


class LanguagePairs(TypedDict):
    supported_languages: list[LanguagePair]


class MonolingualGlossary(TypedDict):
    """A glossary of one pair of languages."""

    glossary_id: str
    name: str
    ready: bool
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class MonolingualGlossaries(TypedDict):
    glossaries: list[MonolingualGlossary]


class GlossaryDictionary(TypedDict):
    source_lang: str
    target_lang: str
    entry_count: int


class MultilingualGlossary(TypedDict):
    glossary_id: str
    name: str
    dictionaries: list[GlossaryDictionary]
    creation_time: str


class MultilingualGlossaries(TypedDict):
    glossaries: list[MultilingualGlossary]


class DictionaryEntries(TypedDict):
    source_lang: str
    target_lang: str
    entries: str
    entries_format: Literal["tsv"]


class GlossaryEntries(TypedDict):
    dictionaries: list[DictionaryEntries]
