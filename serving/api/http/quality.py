"""The JSON of the estimated quality of translations, for all protocols."""

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.pipelines.translation.job import Rendering
from serving.pipelines.translation.quality import text_score

_DIGITS = 4  # of scores and probabilities


class SentenceQuality(TypedDict):
    """score: the chrF to be expected, from 0 to 1. words: without tags. word_probabilities: null
    for words that were copied.
    """

    score: float
    words: list[str]
    word_probabilities: list[float | None]


class TextQuality(TypedDict):
    """score: the mean of the sentences; null for a text without words."""

    score: float | None
    sentences: list[SentenceQuality]


def describe_quality(rendering: Rendering) -> TextQuality:
    return {
        "score": _round(text_score(rendering.quality)),
        "sentences": [
            {
                "score": round(sentence.score, _DIGITS),
                "words": list(sentence.words),
                "word_probabilities": [*map(_round, sentence.word_probabilities)],
            }
            for sentence in rendering.quality
        ],
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
