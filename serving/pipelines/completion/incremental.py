"""Make the text of completions as their tokens come: what was sent is never taken back."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from serving.pipelines.completion.requests import CompletionRun
from serving.pipelines.jobs import CompletionDelta, CompletionJob, TokenText
from serving.requests.request import FinishReason, Hypothesis, TokenLogprob
from serving.text.chat_template import Chat
from serving.text.reasoning_channels import CHANNEL, HarmonyChannels
from serving.text.stop_strings import StopStrings
from serving.text.tokenizer import Detokenizer, Tokenizer


class IncrementalCompletion:
    """Makes deltas of tokens: text is emitted once nothing can take it back, and a token once its
    text is emitted.

    index: the completion's; one run of a beam search brings several. Stop strings are not looked
        for in the tokens of the prompt that are forced.
    """

    def __init__(
        self, tokenizer: Tokenizer, job: CompletionJob, run: CompletionRun, index: int
    ) -> None:
        self._tokenizer, self._job, self._index = tokenizer, job, index
        self._detokenizer = Detokenizer(tokenizer, run.begins_text)
        self._channels = _channels(job, tokenizer)
        self._reasoning = ""  # not yet emitted
        self._stops = StopStrings(job.stop, job.includes_stop) if job.stop else None
        self._token_ids: list[int] | None = [] if job.returns_token_ids else None
        self._prompt_token_ids = run.prompt_token_ids if job.returns_token_ids else None
        self._reports_tokens = job.decoding.logprobs is not None
        self._num_prompt_tokens, self._num_forced = run.num_prompt_tokens, run.num_forced
        self._num_generated_tokens = 0
        self._num_characters = 0
        self._num_emitted = 0
        self._tokens: deque[TokenText] = deque()  # reported, but their text is not yet emitted
        self._echoed = "".join(map(self._echo, run.echoed))
        self.is_finished = False

    def push(
        self, token_id: int, logprob: float = 0.0, top: Sequence[TokenLogprob] = ()
    ) -> CompletionDelta | None:
        """Return the delta of one more token; None while nothing is certain."""
        is_text = self._channels is None or self._channels.read_token(token_id)
        if self._reports_tokens and is_text:
            self._tokens.append(self._token_text(token_id, logprob, top))
        text = self._without_reasoning(self._detokenizer.push(token_id))
        if self._num_forced:
            self._num_forced -= 1
            return self._emit(text, None)
        self._num_generated_tokens += 1
        if self._token_ids is not None:
            self._token_ids.append(token_id)
        if self._stops is not None:
            text = self._stops.push(text)
        return self._emit(text, FinishReason.STOP if self._is_stopped else None)

    def finish(
        self,
        reason: FinishReason,
        stop_logprob: float | None = None,
        score: float | None = None,
        stop_id: int | None = None,
    ) -> CompletionDelta:
        """Return the last delta.

        stop_logprob, stop_id: of the stop token, which counts among the tokens; it has no text,
            unless the job includes it.
        score: of the hypothesis that it is; a text that is cut by a stop string is another one.
        """
        text = ""
        if stop_id is not None and self._job.includes_stop:
            text = self._without_reasoning(self._detokenizer.push(stop_id))
        text += self._without_reasoning(self._detokenizer.finish())
        if self._stops is not None:
            text = self._stops.push(text)
        if self._is_stopped:
            reason, score = FinishReason.STOP, None
        else:
            if self._token_ids is not None and stop_id is not None:
                self._token_ids.append(stop_id)
            if self._stops is not None:
                text += self._stops.finish()
            if self._reports_tokens and stop_logprob is not None:
                self._tokens.append(TokenText(b"", stop_logprob, (), self._num_characters))
        delta = self._emit(text, reason)
        assert delta is not None, "a delta that ends a completion is never held back"
        return replace(delta, score=score)

    def finish_with(
        self, hypothesis: Hypothesis, num_pushed: int = 0, is_ranked: bool = True
    ) -> Iterator[CompletionDelta]:
        """Yield the deltas of what a hypothesis has beyond the tokens that were pushed."""
        for token in islice(hypothesis.tokens.iter_tokens(), num_pushed, None):
            if (delta := self.push(*token)) is not None:
                yield delta
            if self.is_finished:
                return
        score = hypothesis.score if is_ranked else None
        yield self.finish(hypothesis.reason, hypothesis.stop_logprob, score, hypothesis.stop_id)

    @property
    def _is_stopped(self) -> bool:
        """Return whether a stop string has ended the text."""
        return self._stops is not None and self._stops.has_stopped

    def _echo(self, token_id: int) -> str:
        """Begin with a token of which no more is known; it is emitted with the first delta, as the
        engine may yet refuse.
        """
        if self._reports_tokens:
            token = self._tokenizer.bytes_or_id(token_id)
            self._tokens.append(TokenText(token, None, (), self._num_characters))
        return self._without_reasoning(self._detokenizer.push(token_id))

    def _without_reasoning(self, text: str) -> str:
        """Return what belongs to the answer of the text that comes next; reasoning is kept."""
        if self._channels is not None:
            text, reasoning = self._channels.split(text)
            self._reasoning += reasoning
        self._num_characters += len(text)
        return text

    def _emit(self, text: str, reason: FinishReason | None) -> CompletionDelta | None:
        if text or reason:
            text, self._echoed = self._echoed + text, ""
        self._num_emitted += len(text)
        self.is_finished = reason is not None
        tokens = self._take_certain_tokens() if self._tokens else ()
        if not (text or tokens or self._reasoning or self.is_finished):
            return None
        reasoning, self._reasoning = self._reasoning, ""
        counts = (self._num_prompt_tokens, self._num_generated_tokens)
        delta = CompletionDelta(self._index, text, tokens, reason, *counts, reasoning)
        return delta if self._token_ids is None else self._with_token_ids(delta)

    def _with_token_ids(self, delta: CompletionDelta) -> CompletionDelta:
        """Add the ids of the tokens since the last delta, and to the first one the prompt's."""
        token_ids, self._token_ids = tuple(self._token_ids or ()), []
        prompt_token_ids, self._prompt_token_ids = self._prompt_token_ids, None
        return replace(delta, token_ids=token_ids, prompt_token_ids=prompt_token_ids)

    def _take_certain_tokens(self) -> tuple[TokenText, ...]:
        """Take the tokens whose text has begun to be emitted; at the end, if no stop string cut
        it, all.
        """
        is_whole = self.is_finished and not self._is_stopped
        tokens = []
        while self._tokens and (is_whole or self._tokens[0].offset < self._num_emitted):
            tokens.append(self._tokens.popleft())
        return tuple(tokens)

    def _token_text(self, token_id: int, logprob: float, top: Sequence[TokenLogprob]) -> TokenText:
        bytes_or_id = self._tokenizer.bytes_or_id
        likeliest = tuple((bytes_or_id(token.token_id), token.logprob) for token in top)
        return TokenText(bytes_or_id(token_id), logprob, likeliest, self._num_characters)


def _channels(job: CompletionJob, tokenizer: Tokenizer) -> HarmonyChannels | None:
    """Return what tells reasoning from the answer; None of prompts, and of models without it."""
    if not any(isinstance(prompt, Chat) for prompt in job.prompts):
        return None
    has_channels = CHANNEL in tokenizer.special_tokens.values()
    return HarmonyChannels(tokenizer.special_tokens) if has_channels else None
