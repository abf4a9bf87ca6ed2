"""Completes prompts and chats as streams: text that was sent never has to be taken back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from serving.bundle.manifest import Manifest
from serving.parameters import TokenIds
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.deltas import Deltas, joined
from serving.pipelines.completion.incremental import IncrementalCompletion
from serving.pipelines.completion.job import CompletionDelta, CompletionJob
from serving.pipelines.completion.looking import CompletionLooks
from serving.pipelines.completion.prompts import Prompt, PromptReader
from serving.pipelines.completion.requests import CompletionRequests, CompletionRun
from serving.pipelines.completion.structures import Structures
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.merging import merge
from serving.pipelines.tokens import TokenizedText, TokenizeJob, detokenized, tokenized
from serving.request import FinishedEvent, FinishReason, Hypothesis, TokenEvent
from serving.text.chat.template import Chat
from serving.text.tokenizer import Tokenizer


class CompletionPipeline:
    """Serves the jobs of one language model."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.from_manifest(manifest)
        self._prefix = tuple(manifest.tokens.prompt_prefix)
        self._tokenizer = tokenizer
        self._prompts = PromptReader(manifest, tokenizer)
        self._requests = CompletionRequests(manifest, tokenizer)
        self._structures = Structures(tokenizer, manifest.tokens.stop)
        self._looks = CompletionLooks(manifest, tokenizer)
        self._engine = engine

    async def stream(self, job: CompletionJob) -> Deltas:
        """Yield deltas of all completions as they come; closing the stream cancels what still runs.

        Raises, as it begins, RequestError for what cannot be served, and Overloaded.
        """
        self._engine.check_room(1, job.decoding.share, job.decoding.priority)
        self._looks.check(job.looks)
        prompts = [await self._read(prompt) for prompt in job.prompts]
        for prompt in prompts:
            self._prompts.check_length(prompt, job.decoding.max_new_tokens or 0)
        runs = await self._runs(job, prompts)
        async with aclosing(merge([self._complete(job, run) for run in runs])) as deltas:
            async for delta in deltas:
                yield delta

    async def tokenize(self, job: TokenizeJob) -> TokenizedText:
        """Return the tokens of a text or of a chat. Raises RequestError."""
        return await asyncio.to_thread(self._tokenized, job)

    async def detokenize(self, token_ids: TokenIds) -> str:
        """Return the text of tokens. Raises RequestError."""
        return await asyncio.to_thread(detokenized, self._tokenizer, token_ids)

    def _tokenized(self, job: TokenizeJob) -> TokenizedText:
        prompt = self._prompts.read(job.prompt)
        before = () if prompt.is_whole or not job.adds_special else self._prefix
        return tokenized(self._tokenizer, (*before, *prompt.token_ids))

    async def _read(self, prompt: str | tuple[int, ...] | Chat) -> Prompt:
        if isinstance(prompt, Chat):
            return await asyncio.to_thread(self._prompts.read, prompt)
        return self._prompts.read(prompt)

    async def _runs(self, job: CompletionJob, prompts: Sequence[Prompt]) -> list[CompletionRun]:
        constraints = {
            ends_text: await self._structures.constraint(job.decoding, begins_text=ends_text)
            for ends_text in {prompt.ends_text for prompt in prompts}
        }
        return [
            run
            for number, prompt in enumerate(prompts)
            for run in self._requests.runs(job, number, prompt, constraints[prompt.ends_text])
        ]

    async def _complete(self, job: CompletionJob, run: CompletionRun) -> Deltas:
        completion = IncrementalCompletion(self._tokenizer, job, run, run.index)
        if run.request is None:
            yield completion.finish(FinishReason.LENGTH)
            return
        tokens: list[TokenEvent] = []
        async with aclosing(self._engine.generate(run.request)) as events:
            async for event in events:
                if isinstance(event, FinishedEvent):
                    for last in self._last_deltas(job, run, completion, event):
                        yield self._looks.seen(run, last, tokens, event)
                    return
                if not isinstance(event, TokenEvent):
                    raise_failure(event)
                if not completion.is_finished:
                    tokens.append(event)
                if not completion.is_finished and (delta := completion.push(event)) is not None:
                    yield self._looks.seen(run, delta, tokens, None)
                if completion.is_finished and not run.has_others:
                    return

    def _last_deltas(
        self,
        job: CompletionJob,
        run: CompletionRun,
        best: IncrementalCompletion,
        event: FinishedEvent,
    ) -> Iterator[CompletionDelta]:
        if not best.is_finished:
            score = event.hypotheses[0].score if event.hypotheses else None
            yield best.finish(event.reason, event.stop_logprob, score)
        if run.has_others:
            yield from self._other_hypotheses(job, run, event)

    def _other_hypotheses(
        self, job: CompletionJob, run: CompletionRun, event: FinishedEvent
    ) -> Iterator[CompletionDelta]:
        """Yield all but the best, each as one delta. Those that a search did not find have no
        text.
        """
        for number in range(1, job.num_choices):
            completion = IncrementalCompletion(self._tokenizer, job, run, run.index + number)
            if number < len(event.hypotheses):
                yield joined(list(_deltas(completion, event.hypotheses[number])))
            else:
                yield completion.finish(event.reason)


def _deltas(completion: IncrementalCompletion, hypothesis: Hypothesis) -> Iterator[CompletionDelta]:
    for token in hypothesis.tokens:
        if (delta := completion.push(token)) is not None:
            yield delta
        if completion.is_finished:
            return
    yield completion.finish(hypothesis.reason, hypothesis.stop_logprob, hypothesis.score)
