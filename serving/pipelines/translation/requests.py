"""The segments of a translation job, and the engine requests for them.

The service, the offline commands and the benchmarks build them here, so that all of them run the
same requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from serving.bundle.manifest import Manifest
from serving.pipelines.decoding import (
    MAX_LENGTH_FACTOR,
    MAX_NEW_TOKENS,
    request_arguments,
    sampling_with_seed_offset,
)
from serving.pipelines.translation.glossary import MatchedTerm
from serving.pipelines.translation.job import ScoreJob, TranslationJob
from serving.pipelines.translation.tokenizer_pair import SpecialTokens, TokenizerPair
from serving.requests.parameters import ProcessorParams, TokenIds
from serving.requests.request import MAX_LOGPROBS, Constraint, GenerationRequest, Hypothesis
from serving.text.checks import tokenizing
from serving.text.markup.segments import MarkedSegment
from serving.text.sentences import TextLayout
from serving.text.shortlist import Shortlist

# A stop token would end the request without being reported, and those after it with it.
_BEFORE_ANY_STOP = ProcessorParams(min_tokens=1)
_PROBED_TOKENS = 4  # words of more tokens are rare, and differ in their first ones


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is translated by itself, mostly a sentence.

    place: its number among the segments of its text, from 0.
    terms: the terms of the glossary that occur in it.
    prefixes: beginnings of its translations; each is a request.
    beginning: a constraint on the next tokens, if the next word is partly given.
    marks: tags and protected text among its words; None if there can be none.
    memory_score: how much it is like the unit of a translation memory that it is translated by.
    is_cut: whether it is a part of a sentence that goes on with the next segment.
    is_rest: whether it is a part of a sentence that the segment before begins.
    given: that translation as it is written, if nothing is left to be done; it then has no prefixes
        and makes no request. Otherwise the only prefix is the whole translation, with its end.
    """

    text: str
    source_ids: TokenIds
    place: int = 0
    terms: tuple[MatchedTerm, ...] = ()
    prefixes: tuple[TokenIds, ...] = ((),)
    beginning: Constraint | None = None
    marks: MarkedSegment | None = None
    memory_score: int | None = None
    is_cut: bool = False
    is_rest: bool = False
    given: str | None = None

    @property
    def needs_attention(self) -> bool:
        """Return whether the words of its translation must be aligned with its own."""
        return bool(self.terms) or (self.marks is not None and self.marks.needs_word_alignment)


@dataclass(frozen=True, slots=True)
class TranslationPlan:
    """The segments of all texts of a job, and how to join them into texts again.

    frame: the special tokens of the job's languages.
    layouts: one for each text.
    segments: of all texts, in order.
    """

    frame: SpecialTokens
    layouts: tuple[TextLayout, ...]
    segments: tuple[Segment, ...]

    @property
    def has_terms(self) -> bool:
        return any(segment.terms for segment in self.segments)

    @property
    def first_segments(self) -> list[int]:
        """Return the number of the first segment of each text that has segments."""
        return [number for number, segment in enumerate(self.segments) if segment.place == 0]

    def with_changes(self, changes: dict[int, dict[str, Any]]) -> "TranslationPlan":
        """Return the plan with some fields of some segments changed.

        changes: by the number of a segment, new values by field name.
        """
        segments = list(self.segments)
        for number, own in changes.items():
            segments[number] = replace(segments[number], **own)
        return replace(self, segments=tuple(segments))

    def prefixed_segments(self) -> Iterator[tuple[Segment, TokenIds]]:
        """Yield each segment with each of its prefixes: every pair is one request."""
        return ((segment, prefix) for segment in self.segments for prefix in segment.prefixes)


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
        arguments = self._arguments(job, plan.frame)
        return [
            self._request(
                plan.frame,
                f"{job.request_id}-{number}",
                segment.source_ids,
                forced_ids=prefix,
                **(arguments | self._of_segment(job, segment)),
            )
            for number, (segment, prefix) in enumerate(plan.prefixed_segments())
        ]

    def _of_segment(self, job: TranslationJob, segment: Segment) -> dict[str, Any]:
        is_given = segment.memory_score is not None
        return self._only_read(job) if is_given else self._generated(job, segment)

    def _generated(self, job: TranslationJob, segment: Segment) -> dict[str, Any]:
        """Return the fields of a request in which the model translates a segment."""
        needs_attention = segment.needs_attention and self._has_attention
        return {
            "sampling": sampling_with_seed_offset(job.decoding.sampling, segment.place),
            "constraint": segment.beginning,
            "max_new_tokens": self._max_new_tokens(job, segment.source_ids),
            "returns_logprobs": job.returns_scores
            or job.returns_quality
            or len(segment.prefixes) > 1,
            "alignment_heads": job.attention_heads
            if job.needs_attention or needs_attention
            else None,
            # Whether words loop is certain only when the terms are in their places.
            "ends_loops": job.protection and not (segment.terms or job.decoding.ignore_eos),
        }

    def _only_read(self, job: TranslationJob) -> dict[str, Any]:
        """Return the fields of a request whose translation is given, for its attention."""
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
                plan.frame,
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

    def scores(self, job: ScoreJob, frame: SpecialTokens) -> list[GenerationRequest]:
        """Return a request for each pair. The target and its end are forced; nothing is
        generated.
        """
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
                alignment_heads=job.attention_heads if job.returns_attention else None,
            )
            for number, (source_ids, target_ids) in enumerate(self._encoded_pairs(job, frame))
        ]

    def _encoded_pairs(
        self, job: ScoreJob, frame: SpecialTokens
    ) -> Iterator[tuple[TokenIds, TokenIds]]:
        sources = self._tokenizers.encode_sources([text.strip() for text, _ in job.pairs], frame)
        with tokenizing("translations"):
            targets = self._tokenizers.target.encode_batch([text.strip() for _, text in job.pairs])
        return zip(sources, ((*ids, self._eos) for ids in targets), strict=True)

    def _arguments(self, job: TranslationJob | ScoreJob, frame: SpecialTokens) -> dict[str, Any]:
        """Return what all requests of a job share."""
        arguments = request_arguments(job.decoding, self._tokenizers.target)
        if beam := job.decoding.beam:
            arguments["beam"] = replace(beam, num_counted=frame.num_counted)
        own = {"attention_queries": job.attention_queries, "job_id": job.request_id}
        return {**arguments, **own}

    def _request(
        self, frame: SpecialTokens, request_id: str, source_ids: TokenIds, **fields: Any
    ) -> GenerationRequest:
        """Build a request, with the fields that depend on the bundle and the languages."""
        if frame.is_prompt:
            return GenerationRequest(request_id, prompt_ids=source_ids, is_whole=True, **fields)
        return GenerationRequest(
            request_id,
            source_ids,
            prompt_ids=frame.prompt,
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


def rescored(request: GenerationRequest, hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis of another request with the score that this request would give it."""
    beam = request.beam
    if beam is None and not request.returns_logprobs:
        return replace(hypothesis, score=0.0)
    logprobs = hypothesis.logprobs[len(request.forced_ids) :]
    length = max(len(logprobs) + (beam.num_counted if beam else 0), 1)
    penalty = beam.length_penalty if beam else 1.0
    return replace(hypothesis, score=sum(logprobs) / length**penalty)
