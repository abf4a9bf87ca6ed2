"""Tells what the tokens of a prompt and of its completion looked at."""

from collections.abc import Sequence
from dataclasses import replace

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import sights_of
from serving.pipelines.completion_requests import CompletionRun
from serving.pipelines.jobs import CompletionDelta
from serving.pipelines.seen import Looks, ReadTokens
from serving.request import FinishedEvent, Look, TokenEvent
from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.shown_tokens import spelt


class CompletionLooks:
    """Names the tokens that one model has read."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._manifest, self._tokenizer = manifest, tokenizer
        self._prefix = tuple(manifest.tokens.prompt_prefix)

    def check(self, looks: tuple[Look, ...]) -> None:
        """Raise RequestError for what the model cannot tell of."""
        sights_of(looks, self._manifest)

    def seen(
        self,
        run: CompletionRun,
        delta: CompletionDelta,
        tokens: Sequence[TokenEvent],
        end: FinishedEvent | None,
    ) -> CompletionDelta:
        """Put what each look saw to the last delta of the run's best completion.

        end: None where a stop string ended it.
        """
        request = run.request
        is_last = delta.finish_reason is not None and delta.index == run.index
        if request is None or not request.looks or not is_last:
            return delta
        given = request.prompt_ids if request.is_whole else self._prefix + request.prompt_ids
        pieces = self._tokenizer.pieces((*given, *(token.token_id for token in tokens)))
        names = list(map(spelt, pieces))
        read = ReadTokens((), tuple(names[: len(given)]), tuple(names[len(given) :]))
        looks = Looks(request.looks, self._manifest.told_attention)
        return replace(delta, seen=looks.seen(tokens, end, read))
