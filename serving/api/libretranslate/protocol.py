"""What LibreTranslate's protocol has of its own: errors, keys, and the types of its answers.

Only the shape of the protocol is LibreTranslate's.
"""

from typing import NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.attention_fields import AttentionMapBody
from serving.api.http.protocol import PlainError, Protocol, plain_error
from serving.errors import KeyRefused
from serving.pipelines.translation.job import SentenceAttention
from serving.request import FinishReason

PROTOCOL = Protocol(
    "libretranslate",
    "",
    plain_error,
    PlainError,
    key_field="api_key",
    statuses={KeyRefused: 403},
)


class Alignment(TypedDict):
    """Pairs words. pharaoh: pairs of numbers of words, as 0-0 1-2."""

    source: list[str]
    target: list[str]
    pharaoh: str


class DetectedLanguage(TypedDict):
    """Names the language that a text is likeliest in. confidence: in percent."""

    confidence: float
    language: str


OfSentence = SentenceAttention | list[AttentionMapBody]


class Translated(TypedDict):
    """Leaves out what was not asked for; for one text nothing is in a list of its own.

    pivot: the language between, of texts that two models translate together.
    """

    translatedText: str | list[str]
    detectedLanguage: NotRequired[DetectedLanguage | list[DetectedLanguage]]
    pivot: NotRequired[str | list[str | None]]
    alternatives: NotRequired[list[str] | list[list[str]]]
    scores: NotRequired[list[float] | list[list[float]]]
    finish_reasons: NotRequired[FinishReason | list[FinishReason]]
    alignments: NotRequired[Alignment | list[Alignment]]
    attention: NotRequired[list[OfSentence] | list[list[OfSentence]]]


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
    """Says what a page that translates may offer. charLimit: of one request."""

    charLimit: int
    frontendTimeout: int
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: FrontendLanguages
