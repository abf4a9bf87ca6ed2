"""Turn the final events of scored pairs into scores."""

from serving.pipelines.attention_maps import Shapes
from serving.pipelines.decoding import require_finished
from serving.pipelines.translation.attention import (
    attention_matrix,
    sentence_attention,
    sentence_maps,
)
from serving.pipelines.translation.job import PairScore
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.request import FinalEvent, GenerationRequest
from serving.text.token_text import token_text


def score_pair(
    tokenizers: TokenizerPair,
    shapes: Shapes,
    special_tokens: LanguagePairTokens,
    request: GenerationRequest,
    end: FinalEvent,
) -> PairScore:
    """Return the score of one pair.

    request: one of `TranslationRequests.scores`.
    end: its final event.
    """
    end = require_finished(end)
    tokens, stop_logprob = end.best.tokens, end.best.stop_logprob
    assert stop_logprob is not None, "a forced stop token ends the request"
    texts = map(token_text, tokenizers.target.pieces(tokens.ids))
    texts_and_logprobs = zip(texts, tokens.logprobs, strict=True)
    source_ids, queries = request.source_ids or (), request.attention_queries
    attention = None
    if request.alignment_heads is not None:
        matrix = attention_matrix(tokens, len(source_ids))
        assert matrix is not None, "the request asks for attention"
        attention = sentence_attention(tokenizers, special_tokens, source_ids, tokens.ids, matrix)
    maps = sentence_maps(tokenizers, special_tokens, shapes, queries, source_ids, tokens, end)
    return PairScore((*texts_and_logprobs, ("", stop_logprob)), attention, maps)
