"""Divides the text of a segment into words, and finds when each is spoken.

As in openai/whisper: `split_to_word_tokens` of tokenizer.py, and `merge_punctuations` and
`add_word_timestamps` of timing.py.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.pipelines.transcription.alignment import Positions
from serving.text.tokenizer import Tokenizer

_WITHOUT_SPACES = {"zh", "ja", "th", "lo", "my", "yue"}
_PREPENDED = "\"'“¿([{-"
_APPENDED = "\"'.。,，!！?？:：”)]}、"
_SENTENCE_ENDS = ".。!！?？"
_LONGEST_MEDIAN = 0.7  # seconds
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens of a window that are a word: those from `first` to before `last`."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, and when it is spoken, in seconds of the window."""

    span: TokenSpan
    start: float
    end: float

    @property
    def text(self) -> str:
        return self.span.text

    @property
    def seconds(self) -> float:
        return self.end - self.start


def split_words(
    tokenizer: Tokenizer, token_ids: Sequence[int], places: Sequence[int], language: str
) -> list[TokenSpan]:
    """Return the words of a text, each with the space before it and its punctuation apart.

    places: numbers of the text's tokens in their window.
    """
    characters = _split_characters(tokenizer, token_ids, places)
    if language in _WITHOUT_SPACES:
        return characters
    words: list[TokenSpan] = []
    for part in characters:
        begins_word = part.text.startswith(" ") or part.text.strip() in string.punctuation
        if begins_word or not words:
            words.append(part)
        else:
            words[-1] = _join(words[-1], part)
    return words


def _split_characters(
    tokenizer: Tokenizer, token_ids: Sequence[int], places: Sequence[int]
) -> list[TokenSpan]:
    """Return the smallest runs of tokens that are whole characters."""
    whole = tokenizer.decode(token_ids)
    parts: list[TokenSpan] = []
    begin, num_characters = 0, 0
    for end in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[begin:end])
        place = text.find(_REPLACEMENT)
        # The bytes of an unfinished character are replaced; some texts have such bytes for good.
        is_whole = place < 0 or whole[num_characters + place :][:1] == _REPLACEMENT
        if is_whole or end == len(token_ids):
            parts.append(TokenSpan(text, places[begin], places[end - 1] + 1))
            begin, num_characters = end, num_characters + len(text)
    return parts


def _join(left: TokenSpan, right: TokenSpan) -> TokenSpan:
    return TokenSpan(left.text + right.text, left.first, right.last)


def time_words(spans: Sequence[TokenSpan], starts: Positions, step: float) -> list[TimedWord]:
    """Return when each word is spoken: until the token after it begins.

    starts: i64 [tokens], the position at which each token of the window begins, and its end.
    step: seconds of a position.
    """
    last = len(starts) - 1
    return [
        TimedWord(
            span, float(starts[span.first] * step), float(starts[min(span.last, last)] * step)
        )
        for span in spans
    ]


def median_seconds(words: Sequence[TimedWord]) -> float:
    """Return how long a word of the window takes: the median, at most 0.7 seconds."""
    seconds = [word.seconds for word in words if word.seconds]
    return min(_LONGEST_MEDIAN, float(np.median(seconds))) if seconds else 0.0


def shorten_at_sentences(words: Sequence[TimedWord], longest: float) -> list[TimedWord]:
    """Return the words with shorter pauses: a sentence's end, and the word after it, take no longer
    than `longest` seconds.
    """
    shortened = list(words)
    for number in range(1, len(words)):
        word = words[number]
        if word.seconds <= longest:
            continue
        if word.text in _SENTENCE_ENDS:
            shortened[number] = replace(word, end=word.start + longest)
        elif words[number - 1].text in _SENTENCE_ENDS:
            shortened[number] = replace(word, start=word.end - longest)
    return shortened


def merge_punctuation(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Return the words with the punctuation that belongs to them; their times stay."""
    merged: list[TimedWord] = []
    for word in reversed(words):
        if merged and word.text.startswith(" ") and word.text.strip() in _PREPENDED:
            following = merged.pop()
            word = replace(following, span=_join(word.span, following.span))
        merged.append(word)
    words, merged = merged[::-1], []
    for word in words:
        if merged and not merged[-1].text.endswith(" ") and word.text in _APPENDED:
            previous = merged.pop()
            word = replace(previous, span=_join(previous.span, word.span))
        merged.append(word)
    return merged


def shorten_at_pauses(
    words: Sequence[TimedWord], start: float, end: float, last_end: float, median: float
) -> list[TimedWord]:
    """Return the words of a segment without the pauses before its first and after its last one.

    start, end: of the segment, by its timestamps. last_end: of the word before it.
    """
    if not words:
        return []
    longest = 2 * median
    words = list(words)
    first = words[0]
    if first.end - last_end > 4 * median and (
        first.seconds > longest or (len(words) > 1 and words[1].end - first.start > 2 * longest)
    ):
        if len(words) > 1 and words[1].seconds > longest:
            boundary = max(words[1].end / 2, words[1].end - longest)
            first = replace(first, end=boundary)
            words[1] = replace(words[1], start=boundary)
        first = replace(first, start=max(0.0, first.end - longest))
    if first.start + 0.5 < start < first.end:
        first = replace(first, start=max(0.0, min(first.end - median, start)))
    words[0] = first
    last = words[-1]
    if last.start < end < last.end - 0.5:
        words[-1] = replace(last, end=max(last.start + median, end))
    return words
