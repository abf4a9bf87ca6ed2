"""Texts become words as in openai/whisper, tokenizer.py and timing.py."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from serving.pipelines.transcription.words import (
    TimedWord,
    TokenSpan,
    median_seconds,
    merge_punctuation,
    shorten_at_pauses,
    shorten_at_sentences,
    split_words,
    time_words,
)
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A token is a byte."""
    folder: Path = tmp_path_factory.mktemp("bytes")
    return byte_tokenizer(folder)


def split(tokenizer: Tokenizer, text: str, language: str = "en", begin: int = 0) -> list[TokenSpan]:
    ids = tokenizer.encode_inside(text)
    return split_words(tokenizer, ids, range(begin, begin + len(ids)), language)


def test_words_have_the_space_before_them_and_punctuation_is_apart(tokenizer: Tokenizer) -> None:
    spans = split(tokenizer, " He's ill, yes.", begin=7)
    assert [span.text for span in spans] == [" He", "'s", " ill", ",", " yes", "."]
    assert spans[0].first == 7 and spans[-1].last == 7 + len(" He's ill, yes.")
    assert all(left.last == right.first for left, right in pairwise(spans))


def test_characters_of_several_tokens_stay_whole(tokenizer: Tokenizer) -> None:
    spans = split(tokenizer, " né 日本", begin=0)
    assert [span.text for span in spans] == [" né", " 日本"]
    assert [span.last - span.first for span in spans] == [4, 7]


def test_languages_without_spaces_are_divided_at_characters(tokenizer: Tokenizer) -> None:
    spans = split(tokenizer, "日本語", language="ja")
    assert [span.text for span in spans] == ["日", "本", "語"]
    assert [(span.first, span.last) for span in spans] == [(0, 3), (3, 6), (6, 9)]


def test_an_unfinished_character_at_the_end_is_a_word(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_inside(" a 日")[:-1]
    spans = split_words(tokenizer, ids, range(len(ids)), "en")
    assert "".join(span.text for span in spans).startswith(" a ")
    assert spans[-1].last == len(ids)


def test_a_word_ends_where_the_next_token_begins() -> None:
    spans = [TokenSpan(" a", 1, 3), TokenSpan(" b", 3, 4)]
    words = time_words(spans, np.array([0, 5, 8, 20, 30]), 0.02)
    assert [(word.start, word.end) for word in words] == [(0.1, 0.4), (0.4, 0.6)]


def timed(*words: tuple[str, float, float]) -> list[TimedWord]:
    return [TimedWord(TokenSpan(text, i, i + 1), a, b) for i, (text, a, b) in enumerate(words)]


def merge_by_loops(words: list[str]) -> list[str]:
    """The published `merge_punctuations`, over texts alone."""
    texts = list(words)
    prepended, appended = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
    i, j = len(texts) - 2, len(texts) - 1
    while i >= 0:
        if texts[i].startswith(" ") and texts[i].strip() in prepended:
            texts[j] = texts[i] + texts[j]
            texts[i] = ""
        else:
            j = i
        i -= 1
    i, j = 0, 1
    while j < len(texts):
        if not texts[i].endswith(" ") and texts[j] in appended:
            texts[i] = texts[i] + texts[j]
            texts[j] = ""
        else:
            i = j
        j += 1
    return [text for text in texts if text]


@pytest.mark.parametrize(
    "texts",
    [
        [" He", ",", " said", ' "', "no", ".", '"'],
        [" (", "a", ")", " b", "!", "?"],
        [".", " a"],
        [" -", " -", "a", "."],
        [" a"],
    ],
)
def test_punctuation_belongs_to_words_as_published(texts: list[str]) -> None:
    words = timed(*((text, i * 1.0, i + 1.0) for i, text in enumerate(texts)))
    merged = merge_punctuation(words)
    assert [word.text for word in merged] == merge_by_loops(texts)
    assert [word.span.first for word in merged] == sorted(word.span.first for word in merged)


def test_merged_punctuation_leaves_the_times_of_the_word() -> None:
    [word] = merge_punctuation(timed((' "', 0.0, 1.0), ("a", 1.0, 2.0), (".", 2.0, 5.0)))
    assert (word.text, word.start, word.end) == (' "a.', 1.0, 2.0)
    assert (word.span.first, word.span.last) == (0, 3)


def test_the_median_is_of_words_with_a_length_and_at_most_700_ms() -> None:
    assert median_seconds(timed(("a", 0, 0.2), ("b", 0.2, 0.2), ("c", 0.2, 0.6))) == 0.3
    assert median_seconds(timed(("a", 0, 5), ("b", 5, 10))) == 0.7
    assert median_seconds([]) == 0.0


def test_pauses_at_the_ends_of_sentences_belong_to_no_word() -> None:
    words = timed(("a", 0.0, 0.4), (".", 0.4, 3.0), ("b", 3.0, 6.0), ("c", 6.0, 9.0))
    shortened = shorten_at_sentences(words, 0.8)
    times = [(round(word.start, 6), round(word.end, 6)) for word in shortened]
    assert times == [(0.0, 0.4), (0.4, 1.2), (5.2, 6.0), (6.0, 9.0)]


def test_a_pause_before_the_first_word_belongs_to_no_word() -> None:
    words = timed((" a", 0.0, 5.0), (" b", 5.0, 5.3))
    [first, second] = shorten_at_pauses(words, 0.0, 5.3, 0.0, 0.3)
    assert first.start == pytest.approx(4.4) and (first.end, second.start) == (5.0, 5.0)


def test_words_at_the_edges_follow_the_times_of_the_segment() -> None:
    words = timed((" a", 1.0, 2.2), (" b", 2.2, 2.5), (" c", 2.5, 4.0))
    [first, _, last] = shorten_at_pauses(words, 1.8, 3.0, 1.0, 0.6)
    assert first.start == pytest.approx(1.6) and last.end == pytest.approx(3.1)
    assert shorten_at_pauses([], 0.0, 1.0, 0.0, 0.3) == []
