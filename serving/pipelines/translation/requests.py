"""Builds the engine's requests of translation jobs, each once and whole, without an engine.

The service, the offline commands and the bench build them here, so that what is measured is what
is served.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from serving.bundle.manifest import Manifest
from serving.parameters import ProcessorParams, TokenIds
from serving.pipelines.decoding import (
    MAX_LENGTH_FACTOR,
    MAX_NEW_TOKENS,
    request_arguments,
    sampling_with_own_seed,
)
from serving.pipelines.engine_port import successful_end
from serving.pipelines.translation.job import ScoreJob, TranslationJob
from serving.pipelines.translation.planning import TranslationPlan
from serving.pipelines.translation.tokenizer_pair import LanguageFrame, TokenizerPair
from serving.request import MAX_LOGPROBS, Event, GenerationRequest, TokenEvent
from serving.text.plain_text import tokenizing
from serving.text.shortlist import Shortlist
from serving.text.tokenizer import Tokenizer

# A stop token would end the request without being reported, and those after it with it.
_BEFORE_ANY_STOP = ProcessorParams(min_tokens=1)


class TranslationRequests:
    """Builds the requests of one bundle's jobs; needs no engine, so the bench can ask for them.

    `TranslationRequests(manifest, tokenizers, shortlist).translations(job, planner.plan(job))` are
    exactly the requests that the service makes of a job.
    """

    def __init__(
        self, manifest: Manifest, tokenizers: TokenizerPair, shortlist: Shortlist | None = None
    ) -> None:
        self._eos = manifest.tokens.eos
        self._defaults = manifest.generation
        self._has_attention = manifest.num_attention_heads > 0
        self._tokenizers = tokenizers
        self._shortlist = shortlist

    def translations(self, job: TranslationJob, plan: TranslationPlan) -> list[GenerationRequest]:
        """Return a request for each segment with each of its prefixes.

        Segments of a text draw with seeds of their own, counted within it: a list of texts gives
        what its texts give alone. The prefixes of a segment share its seed: each gives what it
        gives when it is asked for alone.
        """
        arguments = self._arguments(job, plan.frame)
        return [
            self._request(
                plan.frame,
                f"{job.request_id}-{number}",
                segment.source_ids,
                **arguments,
                sampling=sampling_with_own_seed(job.decoding.sampling, segment.place),
                forced_ids=prefix,
                constraint=segment.beginning,
                max_new_tokens=self._max_new_tokens(job, segment.source_ids),
                tells_logprobs=job.tells_scores,
                alignment_heads=job.attention_heads
                if job.wants_attention or (segment.needs_attention and self._has_attention)
                else None,
            )
            for number, (segment, prefix) in enumerate(plan.prefixed_segments())
        ]

    def probes(self, job: TranslationJob, plan: TranslationPlan) -> list[GenerationRequest]:
        """Return a request for each text that reports the likeliest tokens after its prefix."""
        return [
            self._request(
                plan.frame,
                f"{job.request_id}-next-{number}",
                plan.segments[number].source_ids,
                forced_ids=plan.segments[number].prefixes[0],
                max_new_tokens=1,
                logprobs=MAX_LOGPROBS,
                processors=_BEFORE_ANY_STOP,
                priority=job.decoding.priority,
                timeout_seconds=job.decoding.timeout_seconds,
                job_id=job.request_id,
                share=job.decoding.share,
            )
            for number in plan.first_segments
        ]

    def scores(self, job: ScoreJob, frame: LanguageFrame) -> list[GenerationRequest]:
        """Return a request for each pair: its target is forced, the end too, nothing generated."""
        arguments = self._arguments(job, frame)
        return [
            self._request(
                frame,
                f"{job.request_id}-{number}",
                source_ids,
                **arguments,
                sampling=job.decoding.sampling,
                forced_ids=target_ids,
                max_new_tokens=0,
                alignment_heads=job.attention_heads if job.tells_attention else None,
            )
            for number, (source_ids, target_ids) in enumerate(self._encoded_pairs(job, frame))
        ]

    def _encoded_pairs(
        self, job: ScoreJob, frame: LanguageFrame
    ) -> Iterator[tuple[TokenIds, TokenIds]]:
        sources = self._tokenizers.encode_sources([text.strip() for text, _ in job.pairs], frame)
        with tokenizing("translations"):
            targets = self._tokenizers.target.encode_batch([text.strip() for _, text in job.pairs])
        return zip(sources, ((*ids, self._eos) for ids in targets), strict=True)

    def _arguments(self, job: TranslationJob | ScoreJob, frame: LanguageFrame) -> dict[str, Any]:
        """Return what all requests of a job share."""
        arguments = request_arguments(job.decoding, self._tokenizers.target)
        if beam := job.decoding.beam:
            arguments["beam"] = replace(beam, num_counted=frame.num_counted)
        own = {"attention_queries": job.attention_queries, "job_id": job.request_id}
        return {**arguments, **own}

    def _request(
        self, frame: LanguageFrame, request_id: str, source_ids: TokenIds, **fields: Any
    ) -> GenerationRequest:
        """Build a request with what it has of the bundle and of the languages."""
        return GenerationRequest(
            request_id,
            source_ids,
            prompt_ids=frame.prompt,
            shortlist=self._shortlist.tokens_for(source_ids) if self._shortlist else None,
            **fields,
        )

    def _max_new_tokens(self, job: TranslationJob, source_ids: TokenIds) -> int | None:
        """Return the client's limit, else the least of the model's own; None if it has none."""
        if job.decoding.max_new_tokens is not None:
            return job.decoding.max_new_tokens
        limit: int | None = self._defaults.get(MAX_NEW_TOKENS)
        if (factor := self._defaults.get(MAX_LENGTH_FACTOR)) is None:
            return limit
        by_source = ceil(factor * len(source_ids))
        return by_source if limit is None else min(limit, by_source)


def with_alternative_prefixes(
    plan: TranslationPlan, outcomes: Sequence[Sequence[Event]], count: int, tokenizer: Tokenizer
) -> TranslationPlan:
    """Return the plan with several prefixes for the first segment of each text.

    outcomes: of the plan's probes, see `TranslationRequests`.
    count: of translations that are wanted; there are up to two prefixes for each, as some lead to
        the same text in other tokens.
    """
    longer: dict[int, dict[str, Any]] = {}
    for number, events in zip(plan.first_segments, outcomes, strict=True):
        prefix = plan.segments[number].prefixes[0]
        words = _next_words(events, tokenizer)[: 2 * count]
        longer[number] = {"prefixes": tuple((*prefix, word) for word in words) or (prefix,)}
    return plan.with_changes(longer)


def _next_words(events: Sequence[Event], tokenizer: Tokenizer) -> list[int]:
    """Return the tokens with some text that may come next, likeliest first."""
    successful_end(events)
    [*_, last] = (event for event in events if isinstance(event, TokenEvent))
    ids = [token.token_id for token in last.top]
    return [token_id for token_id in ids if tokenizer.token_bytes(token_id).strip()]
