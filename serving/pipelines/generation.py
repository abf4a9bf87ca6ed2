"""Prompts to completions, streamed: text that was sent never has to be taken back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.parameters import MAX_SEED, SamplingParams, TokenIds
from serving.pipelines.completion import Completion
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.jobs import CompletionDelta, CompletionJob, ModelCard
from serving.pipelines.merging import merge
from serving.pipelines.requests import RequestMaker
from serving.pipelines.structures import Structures
from serving.request import FinishedEvent, GenerationRequest, Hypothesis, TokenEvent
from serving.text.tokenizer import Tokenizer

Deltas = AsyncGenerator[CompletionDelta, None]


@dataclass(frozen=True, slots=True)
class _Run:
    """One request to the engine and the number of its first completion.

    echoed: tokens that the completion begins with and of which the engine tells nothing.
    """

    request: GenerationRequest
    index: int
    echoed: TokenIds


class GenerationPipeline:
    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.of(manifest)
        self._tokens = manifest.tokens
        self._vocab_size = manifest.vocab_size
        self._tokenizer = tokenizer
        self._requests = RequestMaker(tokenizer)
        self._structures = Structures(tokenizer, manifest.tokens.stop)
        self._engine = engine

    def stream(self, job: CompletionJob) -> Deltas:
        """Deltas of all completions as they come; closing the stream cancels what still runs.

        Raises RequestError at once for what cannot be served; a grammar that does not compile
        raises it as the stream begins.
        """
        prompts = [self._prompt_ids(prompt) for prompt in job.prompts]
        for prompt_ids in prompts:
            self._check_length(prompt_ids, job.decoding.max_new_tokens or 0)
        runs = [run for number, ids in enumerate(prompts) for run in self._runs(job, number, ids)]
        return self._stream(job, runs)

    async def _stream(self, job: CompletionJob, runs: list[_Run]) -> Deltas:
        constraint = await self._structures.constraint(job.decoding)
        streams = [
            self._complete(job, replace(run, request=replace(run.request, constraint=constraint)))
            for run in runs
        ]
        async with aclosing(merge(streams)) as deltas:
            async for delta in deltas:
                yield delta

    def _prompt_ids(self, prompt: str | TokenIds) -> TokenIds:
        if isinstance(prompt, str):
            return tuple(self._tokenizer.encode(prompt))
        for token_id in prompt:
            if not 0 <= token_id < self._vocab_size:
                message = f"token ids must be between 0 and {self._vocab_size - 1}"
                raise RequestError("prompt", token_id, message)
        return prompt

    def _check_length(self, prompt_ids: TokenIds, max_new_tokens: int) -> None:
        num_prompt_tokens = len(self._tokens.prompt_prefix) + len(prompt_ids)
        if num_prompt_tokens == 0:
            raise RequestError("prompt", "", "must not be empty: this model has no start token")
        room = self.card.max_target_tokens - num_prompt_tokens
        if room < min(max_new_tokens, 1):
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

    def _runs(self, job: CompletionJob, number: int, prompt_ids: TokenIds) -> Iterator[_Run]:
        """A beam search makes all choices of a prompt at once; each sample is a run of its own."""
        make = self._requests.of(job.decoding)
        given, forced = self._divided(job, prompt_ids)
        first = number * job.num_choices
        for sample in range(1 if job.decoding.beam else job.num_choices):
            request = make(
                f"{job.request_id}-{first + sample}",
                prompt_ids=given,
                forced_ids=forced,
                sampling=_sampling_of(job.decoding.sampling, sample),
                streams=job.streams,
            )
            if job.decoding.max_new_tokens == 0:  # nothing is generated that could be a stop token
                request = replace(request, ignore_eos=True, stop_token_ids=())
            yield _Run(request, first + sample, given if job.echo else ())

    def _divided(self, job: CompletionJob, prompt_ids: TokenIds) -> tuple[TokenIds, TokenIds]:
        """What of a prompt is only given, and what is forced, so that the engine tells it.

        The first token of all is forced only if the bundle's own prefix comes before it.
        """
        decoding = job.decoding
        if not job.echo or (decoding.logprobs is None and decoding.max_new_tokens != 0):
            return prompt_ids, ()
        num_given = 0 if self._tokens.prompt_prefix else 1
        return prompt_ids[:num_given], prompt_ids[num_given:]

    async def _complete(self, job: CompletionJob, run: _Run) -> Deltas:
        completion = self._completion(job, run, run.index)
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
                if completion.is_finished and not _has_others(run.request):
                    return

    def _ends(
        self, job: CompletionJob, run: _Run, best: Completion, event: FinishedEvent
    ) -> Iterator[CompletionDelta]:
        if not best.is_finished:
            score = event.hypotheses[0].score if event.hypotheses else None
            yield best.ended(event.reason, event.stop_logprob, score)
        if _has_others(run.request):
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
        request = run.request
        num_known = len(self._tokens.prompt_prefix) + len(request.prompt_ids)
        num_forced = len(request.forced_ids)
        completion = Completion(self._tokenizer, job, index, num_known + num_forced, num_forced)
        completion.echo(run.echoed)
        return completion


def _has_others(request: GenerationRequest) -> bool:
    return request.beam is not None and request.beam.num_hypotheses > 1


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
