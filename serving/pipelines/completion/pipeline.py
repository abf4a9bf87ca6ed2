"""Prompts and chats to completions, streamed: text that was sent never has to be taken back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.bundle.manifest import Manifest
from serving.constraints import Constraint
from serving.errors import RequestError
from serving.parameters import MAX_SEED, SamplingParams, TokenIds
from serving.pipelines.completion.growing import Completion
from serving.pipelines.completion.structures import Structures
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.jobs import CompletionDelta, CompletionJob, ModelCard
from serving.pipelines.merging import merge
from serving.pipelines.requests import RequestMaker
from serving.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    TokenEvent,
)
from serving.text.chat import Chat, ChatTemplate
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer

Deltas = AsyncGenerator[CompletionDelta, None]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """token_ids: without the bundle's own prefix, unless they are whole with what they have: chats,
    which their template has written, and prompts that are given as ids, which mean what they say.
    ends_text: what comes next begins a text of its own. field: what the client calls it.
    """

    token_ids: TokenIds
    is_whole: bool = False
    ends_text: bool = False
    field: str = "prompt"


@dataclass(frozen=True, slots=True)
class _Run:
    """One request to the engine and the number of its first completion.

    request: None where what is echoed is all that is wanted.
    echoed: tokens that the completion begins with and of which the engine tells nothing.
    begins_text: the completion, what is echoed included, is a text of its own.
    """

    request: GenerationRequest | None
    index: int
    num_prompt_tokens: int
    echoed: TokenIds
    begins_text: bool

    @property
    def num_forced(self) -> int:
        return len(self.request.forced_ids) if self.request else 0

    @property
    def has_others(self) -> bool:
        """Whether it brings more than one completion."""
        beam = self.request.beam if self.request else None
        return beam is not None and beam.num_hypotheses > 1

    def constrained(self, constraint: Constraint | None) -> "_Run":
        if self.request is None:
            return self
        return replace(self, request=replace(self.request, constraint=constraint))


class GenerationPipeline:
    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.of(manifest)
        self._tokens = manifest.tokens
        self._vocab_size = manifest.vocab_size
        self._tokenizer = tokenizer
        self._chat = _chat_template(manifest, tokenizer)
        self._requests = RequestMaker(tokenizer, manifest.generation.get("max_new_tokens"))
        self._structures = Structures(tokenizer, manifest.tokens.stop)
        self._engine = engine

    async def stream(self, job: CompletionJob) -> Deltas:
        """Deltas of all completions as they come; closing the stream cancels what still runs.

        Raises RequestError as it begins for what cannot be served.
        """
        prompts = [await self._prompt(prompt) for prompt in job.prompts]
        for prompt in prompts:
            self._check_length(prompt, job.decoding.max_new_tokens or 0)
        constraints = {
            ends_text: await self._structures.constraint(job.decoding, begins_text=ends_text)
            for ends_text in {prompt.ends_text for prompt in prompts}
        }
        runs = [
            run.constrained(constraints[prompt.ends_text])
            for number, prompt in enumerate(prompts)
            for run in self._runs(job, number, prompt)
        ]
        async with aclosing(merge([self._complete(job, run) for run in runs])) as deltas:
            async for delta in deltas:
                yield delta

    async def _prompt(self, prompt: str | TokenIds | Chat) -> _Prompt:
        if isinstance(prompt, Chat):
            if self._chat is None:
                message = f"model {self.card.name} has no chat template; it completes prompts only"
                raise RequestError("messages", f"{len(prompt.messages)} messages", message)
            with tokenizing("messages"):
                token_ids = await asyncio.to_thread(self._chat.prompt_ids, prompt)
            return _Prompt(token_ids, True, not prompt.continues_last, "messages")
        if isinstance(prompt, str):
            with tokenizing("prompt"):
                token_ids = tuple(self._tokenizer.encode(prompt))
            return _Prompt(token_ids, ends_text=not prompt)
        for token_id in prompt:
            if not 0 <= token_id < self._vocab_size:
                message = f"token ids must be between 0 and {self._vocab_size - 1}"
                raise RequestError("prompt", token_id, message)
        has_text = any(map(self._tokenizer.token_bytes, prompt))
        return _Prompt(prompt, is_whole=True, ends_text=not has_text)

    def _num_before(self, prompt: _Prompt) -> int:
        """How many tokens the bundle puts in front of a prompt."""
        return 0 if prompt.is_whole else len(self._tokens.prompt_prefix)

    def _check_length(self, prompt: _Prompt, max_new_tokens: int) -> None:
        num_prompt_tokens = self._num_before(prompt) + len(prompt.token_ids)
        if num_prompt_tokens == 0:
            reason = "" if prompt.is_whole else ": this model has no start token"
            raise RequestError(prompt.field, "", f"must not be empty{reason}")
        room = self.card.max_target_tokens - num_prompt_tokens
        if room < min(max_new_tokens, 1):
            raise RequestError(
                prompt.field,
                f"{num_prompt_tokens} tokens",
                f"must leave room in the context of {self.card.max_target_tokens} tokens",
            )
        if max_new_tokens > room:
            message = (
                f"{prompt.field} ({num_prompt_tokens} tokens) and completion must fit "
                f"the context of {self.card.max_target_tokens} tokens"
            )
            raise RequestError("max_tokens", max_new_tokens, message)

    def _runs(self, job: CompletionJob, number: int, prompt: _Prompt) -> Iterator[_Run]:
        """A beam search makes all choices of a prompt at once; each sample is a run of its own."""
        given, forced = self._divided(job, prompt)
        is_told = job.decoding.max_new_tokens == 0 and not forced
        step = job.num_choices if job.decoding.beam and not is_told else 1
        first = number * job.num_choices
        for index in range(first, first + job.num_choices, step):
            yield _Run(
                None if is_told else self._request(job, prompt, index, given, forced),
                index,
                self._num_before(prompt) + len(prompt.token_ids),
                given if job.echo else (),
                job.echo or prompt.ends_text,
            )

    def _request(
        self, job: CompletionJob, prompt: _Prompt, index: int, given: TokenIds, forced: TokenIds
    ) -> GenerationRequest:
        request = self._requests.of(job.decoding)(
            f"{job.request_id}-{index}",
            prompt_ids=given,
            forced_ids=forced,
            sampling=_sampling_of(job.decoding.sampling, index % job.num_choices),
            streams=job.streams,
            is_whole=prompt.is_whole,
        )
        if job.decoding.max_new_tokens == 0:  # nothing is generated that could be a stop token
            return replace(request, ignore_eos=True, stop_token_ids=())
        return request

    def _divided(self, job: CompletionJob, prompt: _Prompt) -> tuple[TokenIds, TokenIds]:
        """What of a prompt is only given, and what is forced, so that the engine tells it.

        The first token of all is forced only if the bundle's own prefix comes before it.
        """
        prompt_ids = prompt.token_ids
        decoding = job.decoding
        if not job.echo or (decoding.logprobs is None and decoding.max_new_tokens != 0):
            return prompt_ids, ()
        num_given = 0 if self._num_before(prompt) else 1
        return prompt_ids[:num_given], prompt_ids[num_given:]

    async def _complete(self, job: CompletionJob, run: _Run) -> Deltas:
        completion = self._completion(job, run, run.index)
        if run.request is None:
            yield completion.ended(FinishReason.LENGTH)
            return
        async with aclosing(self._engine.generate(run.request)) as events:
            async for event in events:
                if isinstance(event, FinishedEvent):
                    for last in self._ends(job, run, completion, event):
                        yield last
                    return
                if not isinstance(event, TokenEvent):
                    raise_failure(event)
                if not completion.is_finished and (delta := completion.grown(event)) is not None:
                    yield delta
                if completion.is_finished and not run.has_others:
                    return

    def _ends(
        self, job: CompletionJob, run: _Run, best: Completion, event: FinishedEvent
    ) -> Iterator[CompletionDelta]:
        if not best.is_finished:
            score = event.hypotheses[0].score if event.hypotheses else None
            yield best.ended(event.reason, event.stop_logprob, score)
        if run.has_others:
            yield from self._other_hypotheses(job, run, event)

    def _other_hypotheses(
        self, job: CompletionJob, run: _Run, event: FinishedEvent
    ) -> Iterator[CompletionDelta]:
        """All but the best, each as one delta. Those that a search did not find have no text."""
        for number in range(1, job.num_choices):
            completion = self._completion(job, run, run.index + number)
            if number < len(event.hypotheses):
                yield joined(list(_deltas(completion, event.hypotheses[number])))
            else:
                yield completion.ended(event.reason)

    def _completion(self, job: CompletionJob, run: _Run, index: int) -> Completion:
        completion = Completion(
            self._tokenizer, job, index, run.num_prompt_tokens, run.num_forced, run.begins_text
        )
        completion.echo(run.echoed)
        return completion


def _chat_template(manifest: Manifest, tokenizer: Tokenizer) -> ChatTemplate | None:
    if manifest.chat_template is None:
        return None
    tokens = manifest.tokens
    special_ids = {
        "bos_token": tokens.bos,
        "eos_token": tokens.eos,
        "pad_token": tokens.pad,
        "unk_token": tokens.unk,
    }
    return ChatTemplate(manifest.chat_template, tokenizer, special_ids)


def _deltas(completion: Completion, hypothesis: Hypothesis) -> Iterator[CompletionDelta]:
    for token in hypothesis.tokens:
        if (delta := completion.grown(token)) is not None:
            yield delta
        if completion.is_finished:
            return
    yield completion.ended(hypothesis.reason, hypothesis.stop_logprob, hypothesis.score)


def _sampling_of(sampling: SamplingParams, sample: int) -> SamplingParams:
    """Each sample of a prompt has its own seed, so that they differ and can be had again."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + sample) % (MAX_SEED + 1))


def joined(deltas: list[CompletionDelta]) -> CompletionDelta:
    """The deltas of one completion as one."""
    return replace(
        deltas[-1],
        text="".join(delta.text for delta in deltas),
        tokens=tuple(token for delta in deltas for token in delta.tokens),
    )


async def collect(
    deltas: AsyncIterator[CompletionDelta], num_choices: int
) -> list[CompletionDelta]:
    """Whole completions, each as one delta, in the order of their indices."""
    pieces: list[list[CompletionDelta]] = [[] for _ in range(num_choices)]
    async for delta in deltas:
        pieces[delta.index].append(delta)
    return [joined(choice) for choice in pieces]
