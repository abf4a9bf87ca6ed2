"""Grows a completion token by token: what of its text and tokens is certain, and how it ends."""

from collections import deque
from dataclasses import replace

from serving.pipelines.completion.job import CompletionDelta, CompletionJob, TokenText
from serving.pipelines.completion.requests import CompletionRun
from serving.request import FinishReason, TokenEvent
from serving.text.detokenizer import Detokenizer
from serving.text.stops import StopStrings
from serving.text.tokenizer import Tokenizer


class IncrementalCompletion:
    """Makes deltas of tokens: text is emitted once nothing can take it back, and a token once its
    text is emitted.

    index: the completion's; one run of a beam search brings several. Stop strings are not looked
        for in the tokens of the prompt that are forced.
    """

    def __init__(
        self, tokenizer: Tokenizer, job: CompletionJob, run: CompletionRun, index: int
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, run.begins_text)
        self._stops = StopStrings(job.stop)
        self._reports_tokens = job.decoding.logprobs is not None
        self._delta = CompletionDelta(index, "", num_prompt_tokens=run.num_prompt_tokens)
        self._num_forced = run.num_forced
        self._num_generated_tokens = 0
        self._num_characters = 0
        self._num_emitted = 0
        self._tokens: deque[TokenText] = deque()
        self._echoed = "".join(map(self._echo, run.echoed))
        self.is_finished = False

    def push(self, event: TokenEvent) -> CompletionDelta | None:
        """Return the delta of one more token; None while nothing is certain."""
        if self._reports_tokens:
            self._tokens.append(self._token_text(event))
        piece = self._written(event.token_id)
        if self._num_forced:
            self._num_forced -= 1
            return self._emit(piece, None)
        self._num_generated_tokens += 1
        text = self._stops.push(piece)
        return self._emit(text, FinishReason.STOP if self._stops.found else None)

    def finish(
        self,
        reason: FinishReason,
        stop_logprob: float | None = None,
        score: float | None = None,
    ) -> CompletionDelta:
        """Return the last delta.

        stop_logprob: of the stop token, which counts among the tokens; it has no text.
        score: of the hypothesis that it is; a text that is cut by a stop string is another one.
        """
        text = self._stops.push(self._detokenizer.finish())
        if self._stops.found:
            reason, score = FinishReason.STOP, None
        else:
            text += self._stops.finish()
            if self._reports_tokens and stop_logprob is not None:
                self._tokens.append(TokenText(b"", stop_logprob, (), self._num_characters))
        delta = self._emit(text, reason)
        assert delta is not None, "a delta that ends a completion is never held back"
        return replace(delta, score=score)

    def _echo(self, token_id: int) -> str:
        """Begin with a token of which no more is known; it is emitted with the first delta, as the
        engine may yet refuse.
        """
        if self._reports_tokens:
            token = self._tokenizer.shown(token_id)
            self._tokens.append(TokenText(token, None, (), self._num_characters))
        return self._written(token_id)

    def _written(self, token_id: int) -> str:
        piece = self._detokenizer.push(token_id)
        self._num_characters += len(piece)
        return piece

    def _emit(self, text: str, reason: FinishReason | None) -> CompletionDelta | None:
        if text or reason:
            text, self._echoed = self._echoed + text, ""
        self._num_emitted += len(text)
        self.is_finished = reason is not None
        tokens = self._certain_tokens()
        if not (text or tokens or self.is_finished):
            return None
        return replace(
            self._delta,
            text=text,
            tokens=tokens,
            finish_reason=reason,
            num_generated_tokens=self._num_generated_tokens,
        )

    def _certain_tokens(self) -> tuple[TokenText, ...]:
        """Take the tokens whose text has begun to be emitted; at the end, if no stop string cut
        it, all.
        """
        is_whole = self.is_finished and not self._stops.found
        tokens = []
        while self._tokens and (is_whole or self._tokens[0].offset < self._num_emitted):
            tokens.append(self._tokens.popleft())
        return tuple(tokens)

    def _token_text(self, event: TokenEvent) -> TokenText:
        shown = self._tokenizer.shown
        top = tuple((shown(token.token_id), token.logprob) for token in event.top)
        return TokenText(shown(event.token_id), event.logprob, top, self._num_characters)
