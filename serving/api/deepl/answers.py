"""Describes DeepL's answers for the OpenAPI document; tests hold the answers to it."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12


class TranslatedText(TypedDict):
    """model_type_used: where a type was asked for. tag_handling_version: where tags are handled."""

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: NotRequired[str]
    tag_handling_version: NotRequired[str]


class Translations(TypedDict):
    translations: list[TranslatedText]


class DeepLLanguage(TypedDict):
    """supports_formality: of targets."""

    language: str
    name: str
    supports_formality: NotRequired[bool]


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
    """Describes a glossary of one pair of languages."""

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
