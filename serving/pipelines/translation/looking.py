"""Tells what the tokens of a sentence and of its translation looked at."""

from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import sights_of
from serving.parameters import TokenIds
from serving.pipelines.seen import Looks, ReadTokens, SeenAttention
from serving.pipelines.translation.tokenizer_pair import LanguageFrame, TokenizerPair
from serving.request import FinishedEvent, Look, TokenEvent
from serving.text.vocabulary.shown_tokens import spelt


class SentenceLooks:
    """Names the tokens of one model's translations."""

    def __init__(self, manifest: Manifest, tokenizers: TokenizerPair) -> None:
        self._manifest, self._tokenizers = manifest, tokenizers

    def check(self, looks: tuple[Look, ...]) -> None:
        """Raise RequestError for what the model cannot tell of."""
        sights_of(looks, self._manifest)

    def seen(
        self,
        looks: tuple[Look, ...],
        frame: LanguageFrame,
        source_ids: TokenIds,
        tokens: Sequence[TokenEvent],
        end: FinishedEvent,
    ) -> tuple[SeenAttention, ...]:
        """Return what each look saw in one request."""
        if not looks:
            return ()
        source = self._tokenizers.source_pieces(source_ids, frame)
        reported = self._tokenizers.target.pieces(token.token_id for token in tokens)
        given = ("",) * frame.num_given
        names = ReadTokens(tuple(map(spelt, source)), given, tuple(map(spelt, reported)))
        return Looks(looks, self._manifest.told_attention).seen(tokens, end, names)
