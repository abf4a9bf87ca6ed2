"""Translate texts: split them, run every segment in one batch, put the translations together.

A job meets only the steps that it asks for. What this file knows is text and token ids; neither
HTTP nor how tokens are chosen.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolve_queries
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import EnginePort, require_finished
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
    MemoryUse,
    PairScore,
    Rendering,
    ScoreJob,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.pipelines.translation.memory import Memories, MemoryLookup
from serving.pipelines.translation.messages import MessageJob, may_have_messages
from serving.pipelines.translation.plan import TranslationPlan
from serving.pipelines.translation.prompting import TranslationPrompts
from serving.pipelines.translation.quality import Calibration
from serving.pipelines.translation.rendering import SegmentRenderer, join_segments
from serving.pipelines.translation.requests import TranslationRequests
from serving.pipelines.translation.scoring import score_pair
from serving.pipelines.translation.segmenting import TextSegmenter
from serving.pipelines.translation.streaming import GrowingTexts
from serving.pipelines.translation.term_placing import TermPlacing
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.request import FinalEvent, FinishedEvent, GenerationRequest
from serving.text.chat_template import Chat
from serving.text.checks import tokenizing
from serving.text.markup.known_words import KnownWords
from serving.text.shortlist import Shortlist

# Longer texts are cut up and put together on another thread, so that other requests go on: to cut
# so many characters takes 7 ms where they are plain, 27 ms with marks. Until then the event loop
# would answer nobody.
_LONG_TEXT_CHARACTERS = 5_000
_WORK_PER_CHARACTER = 0.75  # four are about a token, which is read once and written twice
LanguageJob = TypeVar("LanguageJob", TranslationJob, ScoreJob)
Result = TypeVar("Result")


class TranslationPipeline:
    """Runs the jobs of one translation model.

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
        self._manifest, self._tokenizers, self._engine = manifest, tokenizers, engine
        self._has_prompts = bool(manifest.translation_message)
        self._segmenter = TextSegmenter(
            manifest.limits,
            manifest.tokens,
            tokenizers,
            max_segments,
            known_words,
            TranslationPrompts.for_model(manifest, tokenizers.target),
        )
        self._memory = MemoryLookup(memories, manifest, tokenizers)
        self._requests = TranslationRequests(manifest, tokenizers, shortlist)
        self._terms = TermPlacing(engine, manifest, tokenizers)
        self._calibration = Calibration.from_quality(manifest.quality)

    async def run(self, job: Job[Any]) -> Any:
        """Return translations, or scores of given ones, or the tokens of a source text without
        those of a language, or the text of such tokens.

        Raises RequestError for a language or a number of segments that is not served, and
        Overloaded before any work is done.
        """
        match job:
            case TranslationJob():
                return await self._translate(job)
            case ScoreJob():
                return await self._score(job)
            case TokenizeJob():
                return await asyncio.to_thread(self._tokenize, job)
            case DetokenizeJob():
                return await asyncio.to_thread(detokenize, self._tokenizers.source, job.token_ids)
        raise unsupported_job(self.card.name, job)

    def stream(self, job: StreamedJob[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield the translations piece by piece, and at the end what `run` returns.

        Closing the stream cancels what still runs. Raises as `run` does, as it begins. Texts of a
        job with ICU messages come whole.
        """
        if not isinstance(job, TranslationJob):
            raise unsupported_job(self.card.name, job)
        if job.memory is not None:
            return self._stream_with_memory(job, job.memory)
        return self._stream(job)

    async def _translate(self, job: TranslationJob) -> Translation:
        """Translate texts: what a translation memory has as a whole, and ICU messages, are taken
        out before the rest is cut into segments, and put back afterwards.
        """
        texts = messages = None
        if job.memory is not None:
            texts = await self._memory.find_texts(job, job.memory)
            job = texts.rest
        if may_have_messages(job) and (messages := await _run(job, MessageJob.from_job, job)):
            job = messages.job
        translation = await self._translate_segments(job)
        if messages is not None:
            translation = messages.merge(translation)
        if texts is not None:
            translation = texts.merge(translation)
        return translation

    async def _translate_segments(self, job: TranslationJob) -> Translation:
        job = self._check(job)
        plan = await self._plan(job)
        requests = await _run(job, self._requests.translations, job, plan)
        renderer = self._renderer(job, plan)
        plan, ends = await self._decode(job, plan, requests, renderer)
        renderings = await _run(job, renderer.render_all, plan.segments, ends)
        return await _run(job, _join, job, plan, renderings, ends)

    async def _stream_with_memory(self, job: TranslationJob, use: MemoryUse) -> TranslationStream:
        texts = await self._memory.find_texts(job, use)
        for delta in texts.deltas():
            yield delta
        async with aclosing(self._stream(texts.rest)) as items:
            async for item in items:
                if isinstance(item, Translation):
                    yield texts.merge(item)
                else:
                    yield texts.renumber(item)

    async def _stream(self, job: TranslationJob) -> TranslationStream:
        if may_have_messages(job) and (messages := await _run(job, MessageJob.from_job, job)):
            translation = messages.merge(await self._translate_segments(messages.job))
            for number, text in enumerate(translation.texts):
                yield TranslationDelta(number, 0, text, translation.renderings[number][0].reason)
            yield translation
            return
        job = self._check(job)
        plan = await self._plan(job)
        whole_requests = await _run(job, self._requests.translations, job, plan)
        requests = [replace(request, streams=True) for request in whole_requests]
        renderer = self._renderer(job, plan)
        fallback = self._fallback(job, plan, requests, renderer, time.perf_counter())
        texts = GrowingTexts(fallback, requests, renderer, self._tokenizers.target)
        for delta in texts.fixed_deltas():
            yield delta
        if requests:
            events = self._engine.stream(requests)
            if job.glossary:
                events = self._terms.stream(plan, requests, events)
            if job.protection:
                events = fallback.stream(events)
            async with aclosing(events) as batches:
                async for batch in batches:
                    for delta in texts.push(batch):
                        yield delta
        for delta in texts.blank_deltas():
            yield delta
        plan, ends = fallback.plan, texts.outcomes
        renderings = await _run(job, renderer.render_all, plan.segments, ends)
        yield await _run(job, _join, job, plan, renderings, ends)

    async def _score(self, job: ScoreJob) -> tuple[PairScore, ...]:
        """Return the score of each pair, which is one segment, whatever its length."""
        job = self._check(job)
        self._segmenter.check_number(job.pairs, "pairs")
        special_tokens = await self._special_tokens(job)
        requests = await asyncio.to_thread(self._requests.scores, job, special_tokens)
        outcomes = await self._run_requests(requests)
        shapes = self._manifest.attention_shapes
        score = partial(score_pair, self._tokenizers, shapes, special_tokens)
        return tuple(map(score, requests, outcomes))

    def _tokenize(self, job: TokenizeJob) -> TokenizeResult:
        if isinstance(job.prompt, Chat):
            message = f"model {self.card.name} translates; it has no chats"
            raise RequestError("messages", f"{len(job.prompt.messages)} messages", message)
        with tokenizing("prompt"):
            ids = self._tokenizers.source.encode(job.prompt)
        tokens = self._manifest.tokens
        if job.adds_special:
            ids = [*tokens.source_prefix, *ids, *tokens.source_suffix]
        return describe_tokens(self._tokenizers.source, ids)

    def _check(self, job: LanguageJob) -> LanguageJob:
        """Return the job with the model's own language codes. Raises RequestError."""
        if not self.card.num_attention_heads:
            for field in job.uses_of_attention:
                raise RequestError(field, True, f"model {self.card.name} {self.card.no_attention}")
        if job.attention_queries:
            resolve_queries(job.attention_queries, self._manifest)
        source, target = self.card.languages(job.source, job.target)
        if (source, target) == (job.source, job.target):
            return job
        return replace(job, source=source, target=target)

    async def _plan(self, job: TranslationJob) -> TranslationPlan:
        """Cut the texts into segments, with what a translation memory has for them, if the engine
        has room for the job.
        """
        work = round(_WORK_PER_CHARACTER * sum(map(len, job.texts)))
        self._engine.check_room(work, job.decoding.share, job.decoding.priority)
        await self._special_tokens(job)
        plan = await _run(job, self._segmenter.plan, job)
        if job.memory is not None:
            plan = await self._memory.pretranslate(job, plan, job.memory)
        if job.alternatives_at_prefix:
            probes = await self._run_requests(self._requests.probes(job, plan))
            num_translations, target = job.num_alternatives + 1, self._tokenizers.target
            plan = with_alternative_prefixes(plan, probes, num_translations, target)
        return plan

    async def _special_tokens(self, job: LanguageJob) -> LanguagePairTokens:
        """Return those of the job's languages. The prompt of a language model is made on another
        thread, because that takes some time.
        """
        if self._has_prompts:
            return await asyncio.to_thread(self._segmenter.special_tokens, job.source, job.target)
        return self._segmenter.special_tokens(job.source, job.target)

    async def _decode(
        self,
        job: TranslationJob,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        renderer: SegmentRenderer,
    ) -> tuple[TranslationPlan, list[FinishedEvent]]:
        """Return the final event of each request, and the plan, in which segments may have got a
        fixed translation.
        """
        accepted_at = time.perf_counter()
        outcomes = await self._run_requests(requests)
        if job.glossary:
            outcomes = await self._terms.place_terms(plan, requests, outcomes, accepted_at)
        ends = [require_finished(outcome) for outcome in outcomes]
        if not job.protection:
            return plan, ends
        fallback = self._fallback(job, plan, requests, renderer, accepted_at)
        ends = await fallback.repeat_rejected(ends)
        return fallback.plan, ends

    async def _run_requests(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        """Return the final event of each request."""
        return await self._engine.run(requests) if requests else []

    def _fallback(
        self,
        job: TranslationJob,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        renderer: SegmentRenderer,
        accepted_at: float,
    ) -> Fallback:
        engine, terms, tokenizers = self._engine, self._terms, self._tokenizers
        return Fallback(engine, terms, tokenizers, job, plan, requests, renderer, accepted_at)

    def _renderer(self, job: TranslationJob, plan: TranslationPlan) -> SegmentRenderer:
        return SegmentRenderer(
            job, plan.special_tokens, self._tokenizers, self._manifest, self._calibration
        )


def _join(
    job: TranslationJob,
    plan: TranslationPlan,
    renderings: Sequence[Sequence[Rendering]],
    ends: Sequence[FinishedEvent],
) -> Translation:
    """Join the translations of segments into those of texts."""
    return Translation(
        tuple(join_segments(plan.layouts, renderings, job.num_alternatives + 1)),
        sum([end.num_source_tokens or end.num_prompt_tokens for end in ends]),
        sum([end.num_generated_tokens for end in ends]),
    )


async def _run(job: TranslationJob, work: Callable[..., Result], *arguments: Any) -> Result:
    """Do work for a job; for a long job on another thread."""
    if len(job.texts) + sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)
