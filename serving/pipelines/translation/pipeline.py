"""Texts in one language to texts in another: split, translate every segment in one batch, put back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.engine_port import EnginePort
from serving.pipelines.jobs import (
    ModelCard,
    PairScore,
    Rendering,
    ScoreJob,
    SentenceAttention,
    Translation,
    TranslationJob,
    spelt,
)
from serving.pipelines.requests import RequestMaker
from serving.pipelines.translation.attention import attention_of, sentence_attention
from serving.pipelines.translation.branching import branched, probes
from serving.pipelines.translation.candidates import candidates_of, renderings_of, successful_end
from serving.pipelines.translation.framing import Framing
from serving.pipelines.translation.planning import Plan, Planner, Segment
from serving.pipelines.translation.rendering import Renderer
from serving.pipelines.translation.sides import Affixes, Sides
from serving.request import Event, GenerationRequest, TokenEvent
from serving.text.plain_text import tokenizing
from serving.text.shortlist import Shortlist

# Longer texts are split on another thread, so that streams of other requests go on.
_LONG_TEXT_CHARACTERS = 5_000
Job = TypeVar("Job", TranslationJob, ScoreJob)


class TranslationPipeline:
    def __init__(
        self,
        manifest: Manifest,
        sides: Sides,
        engine: EnginePort,
        shortlist: Shortlist | None = None,
        max_segments: int | None = None,
    ) -> None:
        """max_segments: of one job; None is no limit."""
        self.card = ModelCard.of(manifest)
        self._tokens = manifest.tokens
        self._sides = sides
        self._framing = Framing(manifest, shortlist)
        self._planner = Planner(manifest.limits, manifest.tokens, sides, max_segments)
        self._requests = RequestMaker(sides.target)
        self._engine = engine

    async def translate(self, job: TranslationJob) -> Translation:
        """Raises RequestError for a language or a number of segments that is not served."""
        job = self._checked(job)
        affixes = Affixes.of(self._tokens, job.source, job.target)
        plan = await self._planned(job, affixes)
        if job.alternatives_at_prefix:
            outcomes = await self._outcomes(probes(job, plan), affixes)
            plan = branched(plan, outcomes, job.num_alternatives + 1, self._sides.target)
        outcomes = await self._outcomes(self._translating(job, plan), affixes)
        ends = [successful_end(events) for events in outcomes]
        renderer = Renderer(self._sides, affixes, self._tokens.unk, job)
        return Translation(
            _renderings(job, plan, outcomes, renderer),
            sum(end.num_source_tokens for end in ends),
            sum(end.num_generated_tokens for end in ends),
        )

    async def score(self, job: ScoreJob) -> tuple[PairScore, ...]:
        """Each pair is one segment, whatever its length. Raises RequestError as `translate`."""
        job = self._checked(job)
        self._planner.check_number(job.pairs, "pairs")
        affixes = Affixes.of(self._tokens, job.source, job.target)
        requests = await asyncio.to_thread(self._scoring, job, affixes)
        outcomes = await self._outcomes(requests, affixes)
        told = partial(self._pair_score, affixes)
        return tuple(map(told, requests, outcomes))

    def _checked(self, job: Job) -> Job:
        """The job with its languages as the model has them."""
        if not self.card.num_attention_heads:
            for field in job.uses_of_attention:
                raise RequestError(field, True, f"model {self.card.name} {self.card.no_attention}")
        source, target = self.card.languages(job.source, job.target)
        return replace(job, source=source, target=target)

    async def _planned(self, job: TranslationJob, affixes: Affixes) -> Plan:
        is_long = len(job.texts) + sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS
        if is_long or job.glossary:  # the first glossary takes a look at the whole vocabulary
            return await asyncio.to_thread(self._planner.plan, job, affixes)
        return self._planner.plan(job, affixes)

    async def _outcomes(
        self, requests: Sequence[GenerationRequest], affixes: Affixes
    ) -> list[list[Event]]:
        """What becomes of the requests."""
        completed = [self._framing.completed(request, affixes) for request in requests]
        return await self._engine.run(completed) if completed else []

    def _translating(self, job: TranslationJob, plan: Plan) -> list[GenerationRequest]:
        make = self._requests.of(job.decoding)
        return [
            make(
                f"{job.request_id}-{number}",
                source_ids=segment.source_ids,
                forced_ids=prefix,
                required=segment.required,
                constraint=segment.beginning,
                wants_attention=job.wants_attention,
                attention_heads=job.attention_heads,
                max_new_tokens=self._max_new_tokens(job, segment),
            )
            for number, (segment, prefix) in enumerate(plan.asked())
        ]

    def _max_new_tokens(self, job: TranslationJob, segment: Segment) -> int | None:
        """Take the client's word, else that of the model's makers."""
        wanted = job.decoding.max_new_tokens
        return self._framing.max_new_tokens(segment.source_ids) if wanted is None else wanted

    def _scoring(self, job: ScoreJob, affixes: Affixes) -> list[GenerationRequest]:
        """A target is forced, its end too: nothing is generated."""
        make = self._requests.of(job.decoding)
        sources = self._planner.sources([source.strip() for source, _ in job.pairs], affixes)
        with tokenizing("translations"):
            targets = self._sides.target.encode_batch([target.strip() for _, target in job.pairs])
        return [
            make(
                f"{job.request_id}-{number}",
                source_ids=source_ids,
                forced_ids=(*target_ids, self._tokens.eos),
                max_new_tokens=0,
                wants_attention=job.tells_attention,
                attention_heads=job.attention_heads,
            )
            for number, (source_ids, target_ids) in enumerate(zip(sources, targets, strict=True))
        ]

    def _pair_score(
        self, affixes: Affixes, request: GenerationRequest, events: Sequence[Event]
    ) -> PairScore:
        end = successful_end(events)
        assert end.stop_logprob is not None, "a forced stop token ends the request"
        tokens = [event for event in events if isinstance(event, TokenEvent)]
        texts = map(spelt, self._sides.target.pieces(token.token_id for token in tokens))
        named = zip(texts, (token.logprob for token in tokens), strict=True)
        attention = self._attention(affixes, request, tokens)
        return PairScore((*named, ("", end.stop_logprob)), attention)

    def _attention(
        self, affixes: Affixes, request: GenerationRequest, tokens: Sequence[TokenEvent]
    ) -> SentenceAttention | None:
        if not request.wants_attention:
            return None
        assert request.source_ids is not None, "attention is over a source"
        attention = attention_of(tokens, len(request.source_ids))
        ids = [token.token_id for token in tokens]
        return sentence_attention(self._sides, affixes, request.source_ids, ids, attention)


def _renderings(
    job: TranslationJob, plan: Plan, outcomes: Sequence[Sequence[Event]], renderer: Renderer
) -> tuple[tuple[Rendering, ...], ...]:
    of_segments: list[list[Rendering]] = [[] for _ in plan.segments]
    numbers = [n for n, segment in enumerate(plan.segments) for _ in segment.prefixes]
    asked = zip(numbers, plan.asked(), outcomes, strict=True)
    for number, (segment, prefix), events in asked:
        of_segments[number] += [
            renderer.rendering(segment.source_ids, candidate)
            for candidate in candidates_of(events, len(prefix))
        ]
    return tuple(renderings_of(plan.layouts, of_segments, job.num_alternatives + 1))
