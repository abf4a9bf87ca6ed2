"""Translates texts: splits them, runs every segment in one batch, puts the translations together.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolve_queries
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import EnginePort
from serving.pipelines.jobs import (
    DetokenizeJob,
    Job,
    StreamedJob,
    TokenizeJob,
    TokenizeResult,
    describe_tokens,
    detokenize,
    unsupported_job,
)
from serving.pipelines.translation.alternatives import with_alternative_prefixes
from serving.pipelines.translation.fallback import Fallback
from serving.pipelines.translation.job import (
    PairScore,
    ScoreJob,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.pipelines.translation.memory import KnownTexts, Memories, MemoryLookup
from serving.pipelines.translation.messages import MessageJob
from serving.pipelines.translation.prompting import TranslationPrompts
from serving.pipelines.translation.quality import Calibration
from serving.pipelines.translation.rendering import SegmentRenderer, join_segments, pair_score
from serving.pipelines.translation.requests import TranslationPlan, TranslationRequests
from serving.pipelines.translation.segmenting import TextSegmenter
from serving.pipelines.translation.streaming import GrowingTexts
from serving.pipelines.translation.term_placing import TermPlacing
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.request import FinalEvent, FinishedEvent, GenerationRequest
from serving.text.chat_template import Chat
from serving.text.checks import tokenizing
from serving.text.markup.known_words import KnownWords
from serving.text.shortlist import Shortlist

# Longer texts are cut up and put together on another thread, so that other requests go on.
_LONG_TEXT_CHARACTERS = 5_000
_WORK_PER_CHARACTER = 0.75  # four are about a token, which is read once and written twice
LanguageJob = TypeVar("LanguageJob", TranslationJob, ScoreJob)
Result = TypeVar("Result")


class TranslationPipeline:
    """Serves the jobs of one translation model.

    max_segments: of one job; None for any number.
    known_words: of the source, if that is known.
    memories: the translation memories that jobs may use; None where there are none.
    """

    def __init__(
        self,
        manifest: Manifest,
        tokenizers: TokenizerPair,
        engine: EnginePort,
        shortlist: Shortlist | None = None,
        max_segments: int | None = None,
        known_words: KnownWords | None = None,
        memories: Memories | None = None,
    ) -> None:
        self.card = ModelCard.from_manifest(manifest)
        self._tokenizers = tokenizers
        self._prompts = TranslationPrompts.of(manifest, tokenizers.target)
        self._segmenter = TextSegmenter(
            manifest.limits,
            manifest.tokens,
            tokenizers,
            max_segments,
            known_words,
            self._prompts,
        )
        self._requests = TranslationRequests(manifest, tokenizers, shortlist)
        self._manifest = manifest
        self._memory = MemoryLookup(memories, manifest, tokenizers)
        self._calibration = Calibration.of(manifest.quality)
        self._terms = TermPlacing(engine, manifest, tokenizers)
        self._engine = engine

    async def run(self, job: Job[Any]) -> Any:
        """Return translations, or scores of given ones, or the tokens of a source text without
        those of a language, or the text of such tokens.

        Raises RequestError for a language or a number of segments that is not served, and
        Overloaded before any work is done.
        """
        match job:
            case TranslationJob():
                if known := await self._memory.known_texts(job):
                    return known.put_together(await self._translate_texts(known.rest))
                return await self._translate_texts(job)
            case ScoreJob():
                return await self._score(job)
            case TokenizeJob():
                return await asyncio.to_thread(self._tokenized, job)
            case DetokenizeJob():
                return await asyncio.to_thread(detokenize, self._tokenizers.source, job.token_ids)
        raise unsupported_job(self.card.name, job)

    async def _translate_texts(self, job: TranslationJob) -> Translation:
        """Translate texts, which may be ICU messages."""
        if messages := await _run(MessageJob.of, job):
            return messages.put_together(await self._translate(messages.job))
        return await self._translate(job)

    async def _translate(self, job: TranslationJob) -> Translation:
        job = self._checked(job)
        plan = await self._planned(job)
        requests = await _run(self._requests.translations, job, plan)
        fallback = self._fallback(job, plan, requests)
        ends = await fallback.run()
        return await _run(self._translation, job, fallback.plan, ends)

    def stream(self, job: StreamedJob[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield the translations piece by piece, and at the end what `run` returns.

        Closing the stream cancels what still runs. Raises as `run` does, as it begins. Texts of a
        job with ICU messages come whole.
        """
        if not isinstance(job, TranslationJob):
            raise unsupported_job(self.card.name, job)
        return self._streamed(job) if job.memory is None else self._streamed_with_memory(job)

    async def _streamed_with_memory(self, job: TranslationJob) -> TranslationStream:
        known = await self._memory.known_texts(job) or KnownTexts(job, {})
        for delta in known.deltas():
            yield delta
        async with aclosing(self._streamed(known.rest)) as items:
            async for item in items:
                if isinstance(item, Translation):
                    yield known.put_together(item)
                else:
                    yield known.numbered(item)

    async def _streamed(self, job: TranslationJob) -> TranslationStream:
        if messages := await _run(MessageJob.of, job):
            translation = messages.put_together(await self._translate(messages.job))
            for number, text in enumerate(translation.texts):
                yield TranslationDelta(number, 0, text, translation.renderings[number][0].reason)
            yield translation
            return
        job = self._checked(job)
        plan = await self._planned(job)
        made = await _run(self._requests.translations, job, plan)
        requests = [replace(request, streams=True) for request in made]
        fallback = self._fallback(job, plan, requests)
        renderer = self._renderer(job, plan)
        growing = GrowingTexts(fallback, requests, renderer, self._tokenizers.target)
        for delta in growing.given():
            yield delta
        if requests:
            async with aclosing(fallback.stream()) as batches:
                async for events in batches:
                    for delta in growing.push(events):
                        yield delta
        for delta in growing.blanks():
            yield delta
        yield await _run(self._translation, job, fallback.plan, growing.outcomes)

    async def _score(self, job: ScoreJob) -> tuple[PairScore, ...]:
        """Return the score of each pair, which is one segment, whatever its length."""
        job = self._checked(job)
        self._segmenter.check_number(job.pairs, "pairs")
        await self._prepare_prompt(job)
        frame = self._segmenter.frame(job.source, job.target)
        requests = await asyncio.to_thread(self._requests.scores, job, frame)
        outcomes = await self._outcomes(requests)
        pair = partial(pair_score, self._tokenizers, self._manifest.attention_shapes, frame)
        return tuple(map(pair, requests, outcomes))

    def _tokenized(self, job: TokenizeJob) -> TokenizeResult:
        if isinstance(job.prompt, Chat):
            message = f"model {self.card.name} translates; it has no chats"
            raise RequestError("messages", f"{len(job.prompt.messages)} messages", message)
        with tokenizing("prompt"):
            ids = self._tokenizers.source.encode(job.prompt)
        tokens = self._manifest.tokens
        if job.adds_special:
            ids = [*tokens.source_prefix, *ids, *tokens.source_suffix]
        return describe_tokens(self._tokenizers.source, ids)

    def _checked(self, job: LanguageJob) -> LanguageJob:
        """Return the job with the model's own language codes."""
        if not self.card.num_attention_heads:
            for field in job.uses_of_attention:
                raise RequestError(field, True, f"model {self.card.name} {self.card.no_attention}")
        resolve_queries(job.attention_queries, self._manifest)
        source, target = self.card.languages(job.source, job.target)
        if (source, target) == (job.source, job.target):
            return job
        return replace(job, source=source, target=target)

    async def _planned(self, job: TranslationJob) -> TranslationPlan:
        """Plan a job if the engine has room for it."""
        work = round(_WORK_PER_CHARACTER * sum(map(len, job.texts)))
        self._engine.check_room(work, job.decoding.share, job.decoding.priority)
        await self._prepare_prompt(job)
        plan = await _run(self._segmenter.plan, job)
        plan = await self._memory.applied(job, plan)
        return await self._with_alternatives(job, plan) if job.alternatives_at_prefix else plan

    async def _prepare_prompt(self, job: LanguageJob) -> None:
        """Have the prompt for a pair of languages made, on another thread, where there is one."""
        if self._prompts is not None:
            await asyncio.to_thread(self._prompts.between, job.source, job.target)

    async def _with_alternatives(
        self, job: TranslationJob, plan: TranslationPlan
    ) -> TranslationPlan:
        outcomes = await self._outcomes(self._requests.probes(job, plan))
        count = job.num_alternatives + 1
        return with_alternative_prefixes(plan, outcomes, count, self._tokenizers.target)

    async def _outcomes(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        """Return the final event of each request."""
        return await self._engine.run(requests) if requests else []

    def _translation(
        self, job: TranslationJob, plan: TranslationPlan, ends: Sequence[FinishedEvent]
    ) -> Translation:
        segments = self._renderer(job, plan).renderings(ends)
        return Translation(
            tuple(join_segments(plan.layouts, segments, job.num_alternatives + 1)),
            sum(end.num_source_tokens or end.num_prompt_tokens for end in ends),
            sum(end.num_generated_tokens for end in ends),
        )

    def _fallback(
        self, job: TranslationJob, plan: TranslationPlan, requests: Sequence[GenerationRequest]
    ) -> Fallback:
        renderer = self._renderer(job, plan)
        return Fallback(self._terms, self._tokenizers, job, plan, requests, renderer)

    def _renderer(self, job: TranslationJob, plan: TranslationPlan) -> SegmentRenderer:
        shapes, unknown_id = self._manifest.attention_shapes, self._manifest.tokens.unk
        return SegmentRenderer(job, plan, self._tokenizers, unknown_id, shapes, self._calibration)


async def _run(work: Callable[..., Result], job: TranslationJob, *more: object) -> Result:
    """Run work for a job; for a long job on another thread."""
    if len(job.texts) + sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS:
        return await asyncio.to_thread(work, job, *more)
    return work(job, *more)
