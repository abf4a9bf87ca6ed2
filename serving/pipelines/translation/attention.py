"""The attention of one translated sentence, as weights between tokens and between words."""

from collections.abc import Sequence

import numpy as np

from serving.pipelines.attention_maps import AttentionMap, Shapes, TokenTexts, attention_maps
from serving.pipelines.translation.job import SentenceAttention
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.parameters import TokenIds
from serving.requests.request import AttentionQuery, FinishedEvent, OutputTokens
from serving.text.alignment import DRAWN_WORD, Array, TokenizedText, find_words, word_attention
from serving.text.token_text import token_text


def attention_matrix(tokens: OutputTokens, num_source_tokens: int) -> Array | None:
    """Return the attention of a target's tokens: f32 [target tokens, source tokens]; None if it was
    not asked for.
    """
    if len(tokens.alignments) < len(tokens.ids):
        return None
    return np.array(tokens.alignments, np.float32).reshape(len(tokens.ids), num_source_tokens)


def sentence_attention(
    tokenizers: TokenizerPair,
    special_tokens: LanguagePairTokens,
    source_ids: TokenIds,
    target_ids: Sequence[int],
    attention: Array,
) -> SentenceAttention:
    """Return the attention of a translation by tokens and by words.

    attention: [target tokens, source tokens]
    """
    source_pieces = tokenizers.source_pieces(source_ids, special_tokens)
    target_pieces = tokenizers.target.pieces(target_ids)
    source, target = map(TokenizedText.from_pieces, (source_pieces, target_pieces))
    source_words, target_words = (find_words(text.text, DRAWN_WORD) for text in (source, target))
    by_word = word_attention(attention, target, source, target_words, source_words)
    elsewhere = np.maximum(1 - by_word.sum(axis=1, keepdims=True), 0)
    return SentenceAttention(
        tuple(map(token_text, source_pieces)),
        tuple(map(token_text, target_pieces)),
        _rows(attention),
        (*(source.text[word.start : word.end] for word in source_words), ""),
        tuple(target.text[word.start : word.end] for word in target_words),
        _rows(np.hstack([by_word, elsewhere])),
    )


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))


def sentence_maps(
    tokenizers: TokenizerPair,
    special_tokens: LanguagePairTokens,
    shapes: Shapes,
    queries: Sequence[AttentionQuery],
    source_ids: TokenIds,
    tokens: OutputTokens,
    end: FinishedEvent,
) -> tuple[AttentionMap, ...]:
    """Return a map for each attention query of one request."""
    if not queries:
        return ()
    source = tokenizers.source_pieces(source_ids, special_tokens)
    reported = tokenizers.target.pieces(tokens.ids)
    unreported = ("",) * special_tokens.num_target
    texts = TokenTexts(tuple(map(token_text, source)), unreported, tuple(map(token_text, reported)))
    return attention_maps(queries, shapes, tokens.attention_pieces, end, texts)
