"""Prompts to completions, streamed: text that was sent never has to be taken back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.parameters import MAX_SEED, SamplingParams
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.jobs import CompletionDelta, CompletionJob, ModelCard, TokenText
from serving.pipelines.merging import merge
from serving.request import FinishedEvent, FinishReason, GenerationRequest, TokenEvent
from serving.text.detokenizer import Detokenizer
from serving.text.stops import StopStrings
from serving.text.tokenizer import Tokenizer

Deltas = AsyncGenerator[CompletionDelta, None]


class GenerationPipeline:
    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.of(manifest)
        self._num_prefix_tokens = len(manifest.tokens.prompt_prefix)
        self._vocab_size = manifest.vocab_size
        self._tokenizer = tokenizer
        self._engine = engine

    def stream(self, job: CompletionJob) -> Deltas:
        """Deltas of all completions as they come; closing the stream cancels what still runs.

        Raises RequestError at once for what cannot be served.
        """
        prompts = [self._prompt_ids(prompt) for prompt in job.prompts]
        for prompt_ids in prompts:
            self._check_length(prompt_ids, job.max_new_tokens)
        return merge(
            [
                self._complete(job, prompt_ids, number * job.num_samples + sample, sample)
                for number, prompt_ids in enumerate(prompts)
                for sample in range(job.num_samples)
            ]
        )

    def _prompt_ids(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self._tokenizer.encode(prompt))
        for token_id in prompt:
            if not 0 <= token_id < self._vocab_size:
                message = f"token ids must be between 0 and {self._vocab_size - 1}"
                raise RequestError("prompt", token_id, message)
        return prompt

    def _check_length(self, prompt_ids: tuple[int, ...], max_new_tokens: int) -> None:
        num_prompt_tokens = self._num_prefix_tokens + len(prompt_ids)
        if num_prompt_tokens == 0:
            raise RequestError("prompt", "", "must not be empty: this model has no start token")
        room = self.card.max_target_tokens - num_prompt_tokens
        if room < 1:
            raise RequestError(
                "prompt",
                f"{num_prompt_tokens} tokens",
                f"must leave room in the context of {self.card.max_target_tokens} tokens",
            )
        if max_new_tokens > room:
            message = (
                f"prompt ({num_prompt_tokens} tokens) and completion must fit "
                f"the context of {self.card.max_target_tokens} tokens"
            )
            raise RequestError("max_tokens", max_new_tokens, message)

    async def _complete(
        self, job: CompletionJob, prompt_ids: tuple[int, ...], index: int, sample: int
    ) -> Deltas:
        request = GenerationRequest(
            request_id=f"{job.request_id}-{index}",
            prompt_ids=prompt_ids,
            sampling=_sampling_of(job.sampling, sample),
            max_new_tokens=job.max_new_tokens,
            logprobs=job.logprobs,
        )
        completion = _Completion(self._tokenizer, job, index, self._num_prefix_tokens, prompt_ids)
        if job.echo:
            completion.echo(self._tokenizer.decode(prompt_ids))
        async with aclosing(self._engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, TokenEvent):
                    delta = completion.grown(event)
                elif isinstance(event, FinishedEvent):
                    delta = completion.ended(event.reason)
                else:
                    raise_failure(event)
                if delta is not None:
                    yield delta
                if completion.is_finished:
                    return


class _Completion:
    """The text of one completion while it grows."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        job: CompletionJob,
        index: int,
        num_prefix_tokens: int,
        prompt_ids: tuple[int, ...],
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(job.stop)
        self._reports_tokens = job.logprobs is not None
        self._delta = CompletionDelta(
            index, "", num_prompt_tokens=num_prefix_tokens + len(prompt_ids)
        )
        self._num_characters = 0
        self._untold = ""
        self._num_generated_tokens = 0
        self.is_finished = False

    def echo(self, prompt: str) -> None:
        """Begin with the prompt, which is told with the first delta: the engine may yet refuse."""
        self._num_characters = len(prompt)
        self._untold = prompt

    def grown(self, event: TokenEvent) -> CompletionDelta | None:
        """The delta of one more token; None while nothing is certain."""
        self._num_generated_tokens += 1
        tokens = (self._token_text(event),) if self._reports_tokens else ()
        piece = self._detokenizer.push(event.token_id)
        self._num_characters += len(piece)
        text = self._stops.push(piece)
        self.is_finished = self._stops.found
        if not (text or tokens or self.is_finished):
            return None
        return self._next(text, tokens, FinishReason.STOP if self.is_finished else None)

    def ended(self, reason: FinishReason) -> CompletionDelta:
        self.is_finished = True
        text = self._stops.push(self._detokenizer.finish())
        if self._stops.found:
            return self._next(text, (), FinishReason.STOP)
        return self._next(text + self._stops.finish(), (), reason)

    def _next(
        self, text: str, tokens: tuple[TokenText, ...], finish_reason: FinishReason | None
    ) -> CompletionDelta:
        text, self._untold = self._untold + text, ""
        return replace(
            self._delta,
            text=text,
            tokens=tokens,
            finish_reason=finish_reason,
            num_generated_tokens=self._num_generated_tokens,
        )

    def _token_text(self, event: TokenEvent) -> TokenText:
        top = tuple((self._name(token.token_id), token.logprob) for token in event.top)
        return TokenText(self._name(event.token_id), event.logprob, top, self._num_characters)

    def _name(self, token_id: int) -> str:
        """A token's text; one that is part of a character is spelt as OpenAI spells it."""
        token_bytes = self._tokenizer.token_bytes(token_id)
        try:
            return token_bytes.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def _sampling_of(sampling: SamplingParams, sample: int) -> SamplingParams:
    """Each sample of a prompt has its own seed, so that they differ and can be had again."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + sample) % (MAX_SEED + 1))


async def collect(
    deltas: AsyncIterator[CompletionDelta], num_choices: int
) -> list[CompletionDelta]:
    """Whole completions, each as one delta, in the order of their indices."""
    pieces: list[list[CompletionDelta]] = [[] for _ in range(num_choices)]
    async for delta in deltas:
        pieces[delta.index].append(delta)
    return [
        replace(
            choice[-1],
            text="".join(delta.text for delta in choice),
            tokens=tuple(token for delta in choice for token in delta.tokens),
        )
        for choice in pieces
    ]
