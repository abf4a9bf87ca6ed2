"""LibreTranslate's protocol: errors, keys, and types of answers."""

from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.attention import AttentionMapBody
from serving.api.http.memories import TranslatedSegment
from serving.api.http.protocol import PlainError, Protocol, plain_error
from serving.api.http.quality import TextQuality
from serving.errors import KeyRefused
from serving.pipelines.translation.job import SentenceAttention
from serving.requests.request import FinishReason
from serving.text.language_identification import Detection

PROTOCOL = Protocol(
    "libretranslate",
    "",
    plain_error,
    PlainError,
    key_field="api_key",
    statuses={KeyRefused: 403},
)


class Alignment(TypedDict):
    """Aligned words. pharaoh: pairs of word numbers, as 0-0 1-2."""

    source: list[str]
    target: list[str]
    pharaoh: str


class DetectedLanguage(TypedDict):
    """The likeliest language of a text. confidence: in percent."""

    confidence: float
    language: str


OfSentence = SentenceAttention | list[AttentionMapBody]


class Translated(TypedDict):
    """The answer, with only the fields that were asked for. For a single text no field is a list of
    texts.

    pivot: the language between two models that translate together.
    """

    translatedText: str | list[str]
    detectedLanguage: NotRequired[DetectedLanguage | list[DetectedLanguage]]
    pivot: NotRequired[str | list[str | None]]
    alternatives: NotRequired[list[str] | list[list[str]]]
    scores: NotRequired[list[float] | list[list[float]]]
    quality: NotRequired[TextQuality | list[TextQuality]]
    finish_reasons: NotRequired[FinishReason | list[FinishReason]]
    alignments: NotRequired[Alignment | list[Alignment]]
    attention: NotRequired[list[OfSentence] | list[list[OfSentence]]]
    segments: NotRequired[list[TranslatedSegment] | list[list[TranslatedSegment]]]


class Language(TypedDict):
    code: str
    name: str
    targets: list[str]


class NamedLanguage(TypedDict):
    code: str
    name: str


class FrontendLanguages(TypedDict):
    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(TypedDict):
    """What a page that translates may offer. charLimit: of one request."""

    charLimit: int
    frontendTimeout: int
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: FrontendLanguages


def describe_detection(detection: Detection) -> dict[str, Any]:
    """Return the JSON of a detection, with the confidence in percent."""
    return {"confidence": round(100 * detection.confidence, 1), "language": detection.language}
