"""Reports the attention between a sentence and its translation, by tokens and by words."""

from collections.abc import Sequence

import numpy as np

from serving.parameters import TokenIds
from serving.pipelines.translation.job import SentenceAttention
from serving.pipelines.translation.tokenizer_pair import LanguageFrame, TokenizerPair
from serving.request import TokenEvent
from serving.text.alignment import DRAWN_WORD, Array, TokenizedText, word_attention, words_of
from serving.text.vocabulary.shown_tokens import spelt


def attention_matrix(tokens: Sequence[TokenEvent], num_source_tokens: int) -> Array:
    """Return the attention of a request's tokens: [target tokens, source tokens], f32."""
    rows = [token.alignment for token in tokens]
    assert all(row is not None for row in rows), "attention was asked for"
    return np.array(rows, np.float32).reshape(len(rows), num_source_tokens)


def sentence_attention(
    tokenizers: TokenizerPair,
    frame: LanguageFrame,
    source_ids: TokenIds,
    target_ids: Sequence[int],
    attention: Array,
) -> SentenceAttention:
    """Return what the tokens and the words of a translation attend to.

    attention: [target tokens, source tokens]
    """
    source_pieces = tokenizers.source_pieces(source_ids, frame)
    target_pieces = tokenizers.target.pieces(target_ids)
    source, target = map(TokenizedText.from_pieces, (source_pieces, target_pieces))
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
