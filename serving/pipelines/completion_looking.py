"""Attention maps of the tokens of a prompt and of its completion."""

from collections.abc import Sequence
from dataclasses import replace

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolved_queries
from serving.pipelines.attention_map import TokenTexts, attention_maps
from serving.pipelines.completion_requests import CompletionRun
from serving.pipelines.jobs import CompletionDelta
from serving.request import AttentionQuery, FinishedEvent, TokenEvent
from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.shown_tokens import spelt


class CompletionAttentionMaps:
    """Names the tokens that one model has read."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._manifest, self._tokenizer = manifest, tokenizer
        self._prefix = tuple(manifest.tokens.prompt_prefix)

    def check(self, queries: tuple[AttentionQuery, ...]) -> None:
        """Raise RequestError for a query that the model cannot answer."""
        resolved_queries(queries, self._manifest)

    def of(
        self,
        run: CompletionRun,
        delta: CompletionDelta,
        tokens: Sequence[TokenEvent],
        end: FinishedEvent | None,
    ) -> CompletionDelta:
        """Add the attention maps to the last delta of the run's best completion.

        end: None where a stop string ended it.
        """
        request = run.request
        is_last = delta.finish_reason is not None and delta.index == run.index
        if request is None or not request.attention_queries or not is_last:
            return delta
        given = request.prompt_ids if request.is_whole else self._prefix + request.prompt_ids
        pieces = self._tokenizer.pieces((*given, *(token.token_id for token in tokens)))
        names = list(map(spelt, pieces))
        read = TokenTexts((), tuple(names[: len(given)]), tuple(names[len(given) :]))
        shapes = self._manifest.attention_shapes
        maps = attention_maps(request.attention_queries, shapes, tokens, end, read)
        return replace(delta, attention_maps=maps)
