"""Attention maps of the tokens of a sentence and of its translation."""

from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolved_queries
from serving.parameters import TokenIds
from serving.pipelines.attention_map import AttentionMap, TokenTexts, attention_maps
from serving.pipelines.translation.tokenizer_pair import LanguageFrame, TokenizerPair
from serving.request import AttentionQuery, FinishedEvent, TokenEvent
from serving.text.vocabulary.shown_tokens import spelt


class SentenceAttentionMaps:
    """Names the tokens of one model's translations."""

    def __init__(self, manifest: Manifest, tokenizers: TokenizerPair) -> None:
        self._manifest, self._tokenizers = manifest, tokenizers

    def check(self, queries: tuple[AttentionQuery, ...]) -> None:
        """Raise RequestError for a query that the model cannot answer."""
        resolved_queries(queries, self._manifest)

    def of(
        self,
        queries: tuple[AttentionQuery, ...],
        frame: LanguageFrame,
        source_ids: TokenIds,
        tokens: Sequence[TokenEvent],
        end: FinishedEvent,
    ) -> tuple[AttentionMap, ...]:
        """Return a map for each query of one request."""
        if not queries:
            return ()
        source = self._tokenizers.source_pieces(source_ids, frame)
        reported = self._tokenizers.target.pieces(token.token_id for token in tokens)
        given = ("",) * frame.num_given
        names = TokenTexts(tuple(map(spelt, source)), given, tuple(map(spelt, reported)))
        return attention_maps(queries, self._manifest.attention_shapes, tokens, end, names)
