"""Reads the engine's events as the score of a given translation."""

from collections.abc import Sequence

from serving.pipelines.translation.attention import attention_matrix, sentence_attention
from serving.pipelines.translation.hypotheses import successful_end
from serving.pipelines.translation.job import PairScore, SentenceAttention
from serving.pipelines.translation.language_frame import LanguageFrame
from serving.pipelines.translation.looking import SentenceLooks
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.request import Event, GenerationRequest, TokenEvent
from serving.text.vocabulary.shown_tokens import spelt


def pair_score(
    tokenizers: TokenizerPair,
    looks: SentenceLooks,
    frame: LanguageFrame,
    request: GenerationRequest,
    events: Sequence[Event],
) -> PairScore:
    """Return the score of one pair.

    request: one of `TranslationRequests.scores`.
    events: what became of it.
    """
    end = successful_end(events)
    assert end.stop_logprob is not None, "a forced stop token ends the request"
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    texts = map(spelt, tokenizers.target.pieces(token.token_id for token in tokens))
    named = zip(texts, (token.logprob for token in tokens), strict=True)
    attention = _attention(tokenizers, frame, request, tokens)
    seen = looks.seen(request.looks, frame, request.source_ids or (), tokens, end)
    return PairScore((*named, ("", end.stop_logprob)), attention, seen)


def _attention(
    tokenizers: TokenizerPair,
    frame: LanguageFrame,
    request: GenerationRequest,
    tokens: Sequence[TokenEvent],
) -> SentenceAttention | None:
    if not request.wants_attention:
        return None
    assert request.source_ids is not None, "attention is over a source"
    attention = attention_matrix(tokens, len(request.source_ids))
    ids = [token.token_id for token in tokens]
    return sentence_attention(tokenizers, frame, request.source_ids, ids, attention)
