"""Describes LibreTranslate's answers for the OpenAPI document; tests hold the answers to it."""

from typing import NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.pipelines.translation.job import SentenceAttention
from serving.request import FinishReason


class Alignment(TypedDict):
    """Pairs words. pharaoh: pairs of numbers of words, as 0-0 1-2."""

    source: list[str]
    target: list[str]
    pharaoh: str


class Translated(TypedDict):
    """Leaves out what was not asked for; for one text nothing is in a list of its own."""

    translatedText: str | list[str]
    alternatives: NotRequired[list[str] | list[list[str]]]
    scores: NotRequired[list[float] | list[list[float]]]
    finish_reasons: NotRequired[FinishReason | list[FinishReason]]
    alignments: NotRequired[Alignment | list[Alignment]]
    attention: NotRequired[list[SentenceAttention] | list[list[SentenceAttention]]]


class Language(TypedDict):
    code: str
    name: str
    targets: list[str]
