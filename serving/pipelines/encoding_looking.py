"""Attention maps of the tokens of a text that is only encoded."""

from serving.bundle.manifest import Manifest
from serving.pipelines.attention_map import AttentionMap, TokenTexts, attention_maps
from serving.request import Event, FinishedEvent, GenerationRequest
from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.shown_tokens import spelt


class TextAttentionMaps:
    """Names the tokens that one model has read."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._shapes, self._tokenizer = manifest.attention_shapes, tokenizer

    def of(self, request: GenerationRequest, end: Event) -> tuple[AttentionMap, ...]:
        """Return a map for each query of one text, or pair of texts."""
        if not request.attention_queries:
            return ()
        assert isinstance(end, FinishedEvent)
        pieces = self._tokenizer.pieces(request.source_ids or ())
        names = TokenTexts(tuple(map(spelt, pieces)), (), ())
        return attention_maps(request.attention_queries, self._shapes, (), end, names)
