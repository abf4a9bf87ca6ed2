"""Texts in one language to texts in another: split, translate every segment in one batch, put back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.config import TextLimits
from serving.errors import RequestError
from serving.pipelines.attention import attention_of, sentence_attention
from serving.pipelines.branching import branched, probes
from serving.pipelines.candidates import candidates_of, renderings_of, successful_end
from serving.pipelines.completion import token_name
from serving.pipelines.engine_port import EnginePort
from serving.pipelines.jobs import (
    ModelCard,
    PairScore,
    Rendering,
    ScoreJob,
    SentenceAttention,
    Translation,
    TranslationJob,
)
from serving.pipelines.planning import Plan, Planner
from serving.pipelines.rendering import Renderer
from serving.pipelines.requests import RequestMaker
from serving.request import Event, GenerationRequest, TokenEvent
from serving.text.tokenizer import Tokenizer

# Longer texts are split on another thread, so that streams of other requests go on.
_LONG_TEXT_CHARACTERS = 5_000


class TranslationPipeline:
    def __init__(
        self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort, limits: TextLimits
    ) -> None:
        self.card = ModelCard.of(manifest)
        self._end_id = manifest.tokens.eos
        self._unknown_id = manifest.tokens.unk
        self._tokenizer = tokenizer
        self._planner = Planner(manifest, tokenizer, limits.max_segments)
        self._requests = RequestMaker(tokenizer)
        self._engine = engine

    async def translate(self, job: TranslationJob) -> Translation:
        """Raises RequestError for a language or a number of segments that is not served."""
        self._check(job)
        plan = await self._planned(job)
        if job.alternatives_at_prefix:
            outcomes = await self._outcomes(probes(job, plan))
            plan = branched(plan, outcomes, job.num_alternatives + 1, self._tokenizer)
        outcomes = await self._outcomes(self._translating(job, plan))
        ends = [successful_end(events) for events in outcomes]
        return Translation(
            self._renderings(job, plan, outcomes),
            sum(end.num_source_tokens for end in ends),
            sum(end.num_generated_tokens for end in ends),
        )

    async def score(self, job: ScoreJob) -> tuple[PairScore, ...]:
        """Each pair is one segment, whatever its length. Raises RequestError as `translate`."""
        self._check(job)
        self._planner.check_number(job.pairs, "pairs")
        requests = await asyncio.to_thread(self._scoring, job)
        outcomes = await self._outcomes(requests)
        return tuple(map(self._pair_score, requests, outcomes))

    def _check(self, job: TranslationJob | ScoreJob) -> None:
        for field, language, known in (
            ("source", job.source, self.card.source_languages),
            ("target", job.target, self.card.target_languages),
        ):
            if language not in known:
                message = f"model {self.card.name} has {', '.join(known)}"
                raise RequestError(field, language, message)
        if not self.card.num_attention_heads:
            for field in job.uses_of_attention:
                raise RequestError(field, True, f"model {self.card.name} {self.card.no_attention}")

    async def _planned(self, job: TranslationJob) -> Plan:
        is_long = len(job.texts) + sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS
        if is_long or job.glossary:  # the first glossary takes a look at the whole vocabulary
            return await asyncio.to_thread(self._planner.plan, job)
        return self._planner.plan(job)

    async def _outcomes(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        return await self._engine.run(requests) if requests else []

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
            )
            for number, (segment, prefix) in enumerate(plan.asked())
        ]

    def _renderings(
        self, job: TranslationJob, plan: Plan, outcomes: Sequence[Sequence[Event]]
    ) -> tuple[tuple[Rendering, ...], ...]:
        renderer = Renderer(self._tokenizer, self._unknown_id, job)
        of_segments: list[list[Rendering]] = [[] for _ in plan.segments]
        numbers = [n for n, segment in enumerate(plan.segments) for _ in segment.prefixes]
        asked = zip(numbers, plan.asked(), outcomes, strict=True)
        for number, (segment, prefix), events in asked:
            of_segments[number] += [
                renderer.rendering(segment.source_ids, candidate)
                for candidate in candidates_of(events, len(prefix))
            ]
        return tuple(renderings_of(plan.layouts, of_segments, job.num_alternatives + 1))

    def _scoring(self, job: ScoreJob) -> list[GenerationRequest]:
        """A target is forced, its end too: nothing is generated."""
        make = self._requests.of(job.decoding)
        sources = self._planner.sources([source.strip() for source, _ in job.pairs])
        targets = self._tokenizer.encode_batch([target.strip() for _, target in job.pairs])
        return [
            make(
                f"{job.request_id}-{number}",
                source_ids=source_ids,
                forced_ids=(*target_ids, self._end_id),
                max_new_tokens=0,
                wants_attention=job.tells_attention,
                attention_heads=job.attention_heads,
            )
            for number, (source_ids, target_ids) in enumerate(zip(sources, targets, strict=True))
        ]

    def _pair_score(self, request: GenerationRequest, events: Sequence[Event]) -> PairScore:
        end = successful_end(events)
        assert end.stop_logprob is not None, "a forced stop token ends the request"
        tokens = [event for event in events if isinstance(event, TokenEvent)]
        named = [(token_name(self._tokenizer, token.token_id), token.logprob) for token in tokens]
        return PairScore((*named, ("", end.stop_logprob)), self._attention(request, tokens))

    def _attention(
        self, request: GenerationRequest, tokens: Sequence[TokenEvent]
    ) -> SentenceAttention | None:
        if not request.wants_attention:
            return None
        assert request.source_ids is not None, "attention is over a source"
        attention = attention_of(tokens, len(request.source_ids))
        ids = [token.token_id for token in tokens]
        return sentence_attention(self._tokenizer, request.source_ids, ids, attention)
