"""Complete prompts and chats, as streams or whole.

A job meets only the steps that it asks for. What this file knows is text and token ids; neither
HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolve_queries
from serving.pipelines.attention_maps import TokenTexts, attention_maps
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.images import position_names
from serving.pipelines.completion.incremental import IncrementalCompletion
from serving.pipelines.completion.prompts import Prompt, PromptReader
from serving.pipelines.completion.requests import CompletionRequests, CompletionRun
from serving.pipelines.completion.structures import StructureCompiler
from serving.pipelines.decoding import EnginePort, raise_failure
from serving.pipelines.jobs import (
    CompletionDelta,
    CompletionJob,
    Deltas,
    DetokenizeJob,
    Job,
    StreamedJob,
    TokenizeJob,
    TokenizeResult,
    collect,
    describe_tokens,
    detokenize,
    join_deltas,
    unsupported_job,
)
from serving.pipelines.streams import merge
from serving.requests.request import (
    Constraint,
    FinishedEvent,
    FinishReason,
    OutputTokens,
    TokenEvent,
)
from serving.text.chat_template import Chat
from serving.text.token_text import token_text
from serving.text.tokenizer import Tokenizer


class CompletionPipeline:
    """Runs the jobs of one language model."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.from_manifest(manifest)
        self._prefix = tuple(manifest.tokens.prompt_prefix)
        self._tokenizer = tokenizer
        self._prompts = PromptReader(manifest, tokenizer)
        self._requests = CompletionRequests(manifest, tokenizer)
        self._structures = StructureCompiler(tokenizer, manifest.tokens.stop)
        self._manifest, self._source_names = manifest, position_names(manifest)
        self._engine = engine

    async def run(self, job: Job[Any]) -> Any:
        """Return the whole completions, or the tokens of a text or chat, or the text of tokens.

        Raises RequestError for what cannot be served, and Overloaded.
        """
        match job:
            case CompletionJob():
                return await collect(self.stream(job), job.num_completions)
            case TokenizeJob():
                return await asyncio.to_thread(self._tokenize, job)
            case DetokenizeJob():
                return await asyncio.to_thread(detokenize, self._tokenizer, job.token_ids)
        raise unsupported_job(self.card.name, job)

    async def stream(self, job: StreamedJob[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield deltas of all completions as they come; closing the stream cancels what still runs.

        Raises, as it begins, RequestError for what cannot be served, and Overloaded.
        """
        if not isinstance(job, CompletionJob):
            raise unsupported_job(self.card.name, job)
        self._engine.check_room(1, job.decoding.share, job.decoding.priority)
        if job.attention_queries:
            resolve_queries(job.attention_queries, self._manifest)
        prompts = [await self._read_prompt(prompt, job) for prompt in job.prompts]
        for prompt in prompts:
            self._prompts.check_length(prompt, job.decoding.max_new_tokens or 0)
        constraints = await self._compile_structure(job, prompts)
        runs = [
            run
            for number, prompt in enumerate(prompts)
            for run in self._requests.runs(job, number, prompt, constraints.get(prompt.ends_text))
        ]
        async with aclosing(merge([self._complete(job, run) for run in runs])) as deltas:
            async for delta in deltas:
                yield delta

    def _tokenize(self, job: TokenizeJob) -> TokenizeResult:
        prompt = self._prompts.read(job.prompt)
        before = () if prompt.is_whole or not job.adds_special else self._prefix
        return describe_tokens(self._tokenizer, (*before, *prompt.token_ids))

    async def _read_prompt(
        self, prompt: str | tuple[int, ...] | Chat, job: CompletionJob
    ) -> Prompt:
        """Read a prompt; a chat on another thread, because its template runs in another process."""
        if isinstance(prompt, Chat):
            at_once = job.decoding.structure is not None
            return await asyncio.to_thread(self._prompts.read, prompt, at_once)
        return self._prompts.read(prompt)

    async def _compile_structure(
        self, job: CompletionJob, prompts: Sequence[Prompt]
    ) -> dict[bool, Constraint]:
        """Return the constraint that outputs follow, by whether they begin a text; empty without a
        structure.
        """
        structure, stop_ids = job.decoding.structure, job.decoding.stop_token_ids
        if structure is None:
            return {}
        return {
            ends_text: await self._structures.compile(structure, stop_ids, begins_text=ends_text)
            for ends_text in {prompt.ends_text for prompt in prompts}
        }

    async def _complete(self, job: CompletionJob, run: CompletionRun) -> Deltas:
        """Yield the deltas of the completions of one run."""
        completion = IncrementalCompletion(self._tokenizer, job, run, run.index)
        if run.request is None:
            yield completion.finish(FinishReason.LENGTH)
            return
        tokens = OutputTokens()
        async with aclosing(self._engine.generate(run.request)) as events:
            async for event in events:
                if isinstance(event, FinishedEvent):
                    for last in self._last_deltas(job, run, completion, event, len(tokens.ids)):
                        yield self._with_attention(job, run, last, event.best.tokens, event)
                    return
                if not isinstance(event, TokenEvent):
                    raise_failure(event)
                if not completion.is_finished:
                    tokens.add(event)
                    delta = completion.push(event.token_id, event.logprob, event.top)
                    if delta is not None:
                        yield self._with_attention(job, run, delta, tokens, None)
                if completion.is_finished and not run.has_others:
                    return

    def _last_deltas(
        self,
        job: CompletionJob,
        run: CompletionRun,
        best: IncrementalCompletion,
        event: FinishedEvent,
        num_pushed: int,
    ) -> Iterator[CompletionDelta]:
        """Yield the rest of the best completion, then each other hypothesis of a beam search as one
        delta. Those that the search did not find have no text.

        num_pushed: tokens that the best completion has got already.
        """
        if not best.is_finished:
            is_ranked = job.decoding.beam is not None
            yield from best.finish_with(event.best, num_pushed, is_ranked)
        if not run.has_others:
            return
        for number in range(1, job.num_choices):
            completion = IncrementalCompletion(self._tokenizer, job, run, run.index + number)
            if number < len(event.hypotheses):
                yield join_deltas(list(completion.finish_with(event.hypotheses[number])))
            else:
                yield completion.finish(event.reason)

    def _with_attention(
        self,
        job: CompletionJob,
        run: CompletionRun,
        delta: CompletionDelta,
        tokens: OutputTokens,
        end: FinishedEvent | None,
    ) -> CompletionDelta:
        """Add the attention maps to the last delta of the run's best completion.

        end: None if a stop string ended the completion.
        """
        is_last = delta.finish_reason is not None and delta.index == run.index
        if not (job.attention_queries and is_last):
            return delta
        request = run.request
        assert request is not None, "attention is reported by the engine"
        prompt_ids = request.prompt_ids if request.is_whole else self._prefix + request.prompt_ids
        names = tuple(map(token_text, self._tokenizer.pieces((*prompt_ids, *tokens.ids))))
        num_prompt = len(prompt_ids)
        texts = TokenTexts(self._source_names, names[:num_prompt], names[num_prompt:])
        shapes = self._manifest.attention_shapes
        maps = attention_maps(job.attention_queries, shapes, tokens.attention_pieces, end, texts)
        return replace(delta, attention_maps=maps)
