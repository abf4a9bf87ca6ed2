"""Tells what the tokens of a text that is only encoded looked at."""

from serving.bundle.manifest import Manifest
from serving.pipelines.seen import Looks, ReadTokens, SeenAttention
from serving.request import Event, FinishedEvent, GenerationRequest
from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.shown_tokens import spelt


class TextLooks:
    """Names the tokens that one model has read."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._shapes, self._tokenizer = manifest.told_attention, tokenizer

    def seen(self, request: GenerationRequest, end: Event) -> tuple[SeenAttention, ...]:
        """Return what each look saw in one text, or pair of texts."""
        if not request.looks:
            return ()
        assert isinstance(end, FinishedEvent)
        pieces = self._tokenizer.pieces(request.source_ids or ())
        names = ReadTokens(tuple(map(spelt, pieces)), (), ())
        return Looks(request.looks, self._shapes).seen((), end, names)
