"""Texts in one language to texts in another: split, translate every segment in one batch, put back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.config import TextLimits
from serving.errors import RequestError, TooLarge
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.jobs import ModelCard, Translation, TranslationJob
from serving.request import Event, FinishedEvent, GenerationRequest, TokenEvent
from serving.text.splitting import Layout, split_text
from serving.text.tokenizer import Tokenizer

# Longer texts are split on another thread, so that streams of other requests go on.
_LONG_TEXT_CHARACTERS = 5_000
# A translation may need this many times the tokens of its source, and must still fit the target.
_MOST_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class _Plan:
    layouts: list[Layout]
    requests: list[GenerationRequest]


class TranslationPipeline:
    def __init__(
        self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort, limits: TextLimits
    ) -> None:
        self.card = ModelCard.of(manifest)
        self._tokens = manifest.tokens
        self._tokenizer = tokenizer
        self._engine = engine
        self._max_segments = limits.max_segments
        self._max_segment_tokens = _max_segment_tokens(manifest)

    async def translate(self, job: TranslationJob) -> Translation:
        """Raises RequestError for a language or a number of segments that is not served."""
        self._check_languages(job)
        plan = await self._planned(job)
        outcomes = await self._engine.run(plan.requests) if plan.requests else []
        ends = [_successful_end(events) for events in outcomes]
        translated = iter([self._text(events) for events in outcomes])
        texts = tuple(
            layout.fill([next(translated) for _ in layout.segments]) for layout in plan.layouts
        )
        return Translation(
            texts,
            sum(end.num_source_tokens for end in ends),
            sum(end.num_generated_tokens for end in ends),
        )

    def _check_languages(self, job: TranslationJob) -> None:
        for field, language, known in (
            ("source", job.source, self.card.source_languages),
            ("target", job.target, self.card.target_languages),
        ):
            if language not in known:
                message = f"model {self.card.name} has {', '.join(known)}"
                raise RequestError(field, language, message)

    async def _planned(self, job: TranslationJob) -> _Plan:
        if len(job.texts) + sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS:
            return await asyncio.to_thread(self._plan, job)
        return self._plan(job)

    def _plan(self, job: TranslationJob) -> _Plan:
        layouts = [split_text(text, job.source, self._fits) for text in job.texts]
        segments = [segment for layout in layouts for segment in layout.segments]
        if len(segments) > self._max_segments:
            message = f"at most {self._max_segments} sentences a request, this has {len(segments)}"
            raise TooLarge("text", job.texts[0], message)
        encoded = self._tokenizer.encode_batch(segments)
        requests = [self._request(job, number, ids) for number, ids in enumerate(encoded)]
        return _Plan(layouts, requests)

    def _request(self, job: TranslationJob, number: int, ids: Sequence[int]) -> GenerationRequest:
        source_ids = (*self._tokens.source_prefix, *ids, *self._tokens.source_suffix)
        return GenerationRequest(f"{job.request_id}-{number}", source_ids)

    def _fits(self, segment: str) -> bool:
        """A byte-level token holds at least a byte: short segments need no counting."""
        limit = self._max_segment_tokens
        return len(segment.encode()) <= limit or len(self._tokenizer.encode(segment)) <= limit

    def _text(self, events: list[Event]) -> str:
        ids = [event.token_id for event in events if isinstance(event, TokenEvent)]
        return self._tokenizer.decode(ids).strip()


def _max_segment_tokens(manifest: Manifest) -> int:
    limits, tokens = manifest.limits, manifest.tokens
    longest = int(limits.max_target_tokens / _MOST_GROWTH)
    if limits.max_source_tokens is not None:
        added = len(tokens.source_prefix) + len(tokens.source_suffix)
        longest = min(longest, limits.max_source_tokens - added)
    return max(1, longest)


def _successful_end(events: list[Event]) -> FinishedEvent:
    end = events[-1]
    if not isinstance(end, FinishedEvent):
        assert not isinstance(end, TokenEvent), "a request's last event is final"
        raise_failure(end)
    return end
