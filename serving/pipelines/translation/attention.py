"""What is told of the attention between a sentence and its translation."""

from collections.abc import Sequence

import numpy as np

from serving.parameters import TokenIds
from serving.pipelines.jobs import SentenceAttention, spelt
from serving.pipelines.translation.sides import Affixes, Sides
from serving.request import TokenEvent
from serving.text.alignment import DRAWN_WORD, Array, TokenizedText, word_attention, words_of


def attention_of(tokens: Sequence[TokenEvent], num_source_tokens: int) -> Array:
    """[target tokens, source tokens], f32"""
    rows = [token.attention for token in tokens]
    assert all(row is not None for row in rows), "attention was asked for"
    return np.array(rows, np.float32).reshape(len(rows), num_source_tokens)


def sentence_attention(
    sides: Sides,
    affixes: Affixes,
    source_ids: TokenIds,
    target_ids: Sequence[int],
    attention: Array,
) -> SentenceAttention:
    """attention: [target tokens, source tokens]"""
    source_pieces = sides.source_pieces(source_ids, affixes)
    target_pieces = sides.target.pieces(target_ids)
    source, target = map(TokenizedText.of, (source_pieces, target_pieces))
    source_words, target_words = (words_of(text.text, DRAWN_WORD) for text in (source, target))
    by_word = word_attention(attention, target, source, target_words, source_words)
    elsewhere = np.maximum(1 - by_word.sum(axis=1, keepdims=True), 0)
    return SentenceAttention(
        tuple(map(spelt, source_pieces)),
        tuple(map(spelt, target_pieces)),
        _rows(attention),
        (*(source.text[word.start : word.end] for word in source_words), ""),
        tuple(target.text[word.start : word.end] for word in target_words),
        _rows(np.hstack([by_word, elsewhere])),
    )


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))
