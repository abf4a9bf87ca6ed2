"""Defines the pieces of translations that come as they are made."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from serving.pipelines.translation.job import Translation
from serving.request import FinishReason


@dataclass(frozen=True, slots=True)
class TranslationDelta:
    """Holds the next piece of the translation of one text; all of a text joined are the whole.

    text: number of the text in its job. sentence: number of the sentence in its text, both from 0.
    piece: with it goes what stands before a sentence, and with a text's last piece what is after.
    reason: why the sentence ended, with its last piece.
    """

    text: int
    sentence: int
    piece: str
    reason: FinishReason | None = None


# Deltas as they come, and at the end the whole translation, as `translate` would have it.
TranslationStream = AsyncGenerator[TranslationDelta | Translation, None]
