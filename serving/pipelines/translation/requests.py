"""The engine requests for the segments of a translation job, and for pairs that are scored.

The service, the offline commands and the benchmarks build them here, so that all of them run the
same requests.
"""

from dataclasses import replace
from math import ceil
from typing import Any

from serving.bundle.manifest import Manifest
from serving.pipelines.decoding import (
    MAX_LENGTH_FACTOR,
    MAX_NEW_TOKENS,
    request_arguments,
    sampling_with_seed_offset,
)
from serving.pipelines.translation.job import ScoreJob, TranslationJob
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.parameters import ProcessorParams, TokenIds
from serving.requests.request import MAX_LOGPROBS, GenerationRequest, Hypothesis
from serving.text.checks import tokenizing
from serving.text.shortlist import Shortlist

# A stop token would end the request without being reported, and those after it with it.
_BEFORE_ANY_STOP = ProcessorParams(min_tokens=1)
_PROBED_TOKENS = 4  # words of more tokens are rare, and differ in their first ones


class TranslationRequests:
    """Builds the requests of one bundle's jobs. Needs no engine.

    `TranslationRequests(manifest, tokenizers, shortlist).translations(job, segmenter.plan(job))`
    returns the requests that the service makes for a job.
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

        Sampling: each segment of a text has its own seed, counted from the start of the text, so
            that a text gives the same translation alone and in a list. All prefixes of a segment
            have the same seed.
        """
        shared = self._arguments_of_job(job, plan.special_tokens)
        job_needs_attention = job.needs_attention
        requests: list[GenerationRequest] = []
        for segment in plan.segments:
            if segment.memory_score is None:
                arguments = self._arguments_to_translate(job, segment, job_needs_attention)
            else:
                arguments = self._arguments_to_read(job)
            requests += (
                self._request(
                    plan.special_tokens,
                    f"{job.request_id}-{number}",
                    segment.source_ids,
                    forced_ids=prefix,
                    **{**shared, **arguments},
                )
                for number, prefix in enumerate(segment.prefixes, len(requests))
            )
        return requests

    def _arguments_to_translate(
        self, job: TranslationJob, segment: Segment, job_needs_attention: bool
    ) -> dict[str, Any]:
        """Return the fields of a request in which the model translates a segment."""
        aligns_words = bool(segment.terms) or (
            segment.marks is not None and segment.marks.needs_word_alignment
        )
        needs_attention = job_needs_attention or (aligns_words and self._has_attention)
        return {
            "sampling": sampling_with_seed_offset(job.decoding.sampling, segment.place),
            "constraint": segment.beginning,
            "max_new_tokens": self._max_new_tokens(job, segment.source_ids),
            "returns_logprobs": job.returns_scores
            or job.returns_quality
            or len(segment.prefixes) > 1,
            "alignment_heads": job.attention_heads if needs_attention else None,
            # Whether words loop is certain only when the terms are in their places.
            "ends_loops": job.protection and not (segment.terms or job.decoding.ignore_eos),
        }

    def _arguments_to_read(self, job: TranslationJob) -> dict[str, Any]:
        """Return the fields of a request for the attention of a translation that is fixed."""
        return {
            "beam": None,
            "max_new_tokens": 0,
            "returns_logprobs": job.returns_quality,
            "alignment_heads": job.attention_heads,
        }

    def probes(self, job: TranslationJob, plan: TranslationPlan) -> list[GenerationRequest]:
        """Return a request for each text that reports the likeliest tokens after its prefix, and
        after the first tokens that the model writes there.
        """
        return [
            self._request(
                plan.special_tokens,
                f"{job.request_id}-next-{number}",
                plan.segments[number].source_ids,
                forced_ids=plan.segments[number].prefixes[0],
                max_new_tokens=_PROBED_TOKENS,
                logprobs=MAX_LOGPROBS,
                processors=_BEFORE_ANY_STOP,
                priority=job.decoding.priority,
                timeout_seconds=job.decoding.timeout_seconds,
                job_id=job.request_id,
                share=job.decoding.share,
            )
            for number in plan.first_segments
        ]

    def scores(self, job: ScoreJob, special_tokens: LanguagePairTokens) -> list[GenerationRequest]:
        """Return a request for each pair. The target and its end are forced; nothing is
        generated.
        """
        arguments = self._arguments_of_job(job, special_tokens)
        sources = [source.strip() for source, _ in job.pairs]
        source_rows = self._tokenizers.encode_sources(sources, special_tokens)
        with tokenizing("translations"):
            targets = [target.strip() for _, target in job.pairs]
            target_rows = self._tokenizers.target.encode_batch(targets)
        return [
            self._request(
                special_tokens,
                f"{job.request_id}-{number}",
                source_ids,
                **arguments,
                sampling=job.decoding.sampling,
                forced_ids=(*target_ids, self._eos),
                max_new_tokens=0,
                alignment_heads=job.attention_heads if job.returns_attention else None,
            )
            for number, (source_ids, target_ids) in enumerate(
                zip(source_rows, target_rows, strict=True)
            )
        ]

    def _arguments_of_job(
        self, job: TranslationJob | ScoreJob, special_tokens: LanguagePairTokens
    ) -> dict[str, Any]:
        """Return what all requests of a job share."""
        arguments = request_arguments(job.decoding, self._tokenizers.target)
        if beam := job.decoding.beam:
            arguments["beam"] = replace(beam, num_counted=special_tokens.num_counted)
        arguments["attention_queries"] = job.attention_queries
        arguments["job_id"] = job.request_id
        return arguments

    def _request(
        self,
        special_tokens: LanguagePairTokens,
        request_id: str,
        source_ids: TokenIds,
        **fields: Any,
    ) -> GenerationRequest:
        """Build a request, with the fields that depend on the bundle and the languages."""
        if special_tokens.is_prompt:
            return GenerationRequest(request_id, prompt_ids=source_ids, is_whole=True, **fields)
        return GenerationRequest(
            request_id,
            source_ids,
            prompt_ids=special_tokens.target_prefix,
            shortlist=self._shortlist.tokens_for(source_ids) if self._shortlist else None,
            **fields,
        )

    def _max_new_tokens(self, job: TranslationJob, source_ids: TokenIds) -> int | None:
        """Return the client's limit, else the smallest limit of the model; None if there is
        none.
        """
        if job.decoding.max_new_tokens is not None:
            return job.decoding.max_new_tokens
        limit: int | None = self._defaults.get(MAX_NEW_TOKENS)
        if (factor := self._defaults.get(MAX_LENGTH_FACTOR)) is None:
            return limit
        by_source = ceil(factor * len(source_ids))
        return by_source if limit is None else min(limit, by_source)


def rescore(request: GenerationRequest, hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis of another request with the score that this request would give it."""
    beam = request.beam
    if beam is None and not request.returns_logprobs:
        return replace(hypothesis, score=0.0)
    logprobs = hypothesis.logprobs[len(request.forced_ids) :]
    length = max(len(logprobs) + (beam.num_counted if beam else 0), 1)
    penalty = beam.length_penalty if beam else 1.0
    return replace(hypothesis, score=sum(logprobs) / length**penalty)
