"""The segments of a translation job, and the engine requests for them.

The service, the offline commands and the benchmarks build them here, so that all of them run the
same requests.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from serving.bundle.manifest import Limits, Manifest, Tokens
from serving.errors import RequestError, TooLarge
from serving.parameters import ProcessorParams, TokenIds
from serving.pipelines.decoding import (
    MAX_LENGTH_FACTOR,
    MAX_NEW_TOKENS,
    request_arguments,
    sampling_with_own_seed,
    successful,
)
from serving.pipelines.translation.glossary import NOT_WRITABLE, FoundTerm, Glossary
from serving.pipelines.translation.job import ScoreJob, TranslationJob
from serving.pipelines.translation.tokenizer_pair import LanguageTokens, TokenizerPair
from serving.request import MAX_LOGPROBS, Constraint, FinalEvent, GenerationRequest
from serving.text.languages import primary_language
from serving.text.markup.protection import KnownWords, Protection
from serving.text.markup.segments import MarkedReader, MarkedSegment
from serving.text.plain_text import tokenizing
from serving.text.sentences import TextLayout, has_wrapped_lines, split_text
from serving.text.shortlist import Shortlist
from serving.text.terms import Beginnings
from serving.text.tokenizer import Tokenizer

# A stop token would end the request without being reported, and those after it with it.
_BEFORE_ANY_STOP = ProcessorParams(min_tokens=1)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is translated by itself, mostly a sentence.

    place: its number among the segments of its text, from 0.
    terms: the terms of the glossary that occur in it.
    prefixes: beginnings of its translations; each is a request.
    beginning: a constraint on the next tokens, if the next word is partly given.
    marks: tags and protected text among its words; None if there can be none.
    """

    text: str
    source_ids: TokenIds
    place: int = 0
    terms: tuple[FoundTerm, ...] = ()
    prefixes: tuple[TokenIds, ...] = ((),)
    beginning: Constraint | None = None
    marks: MarkedSegment | None = None

    @property
    def needs_attention(self) -> bool:
        """Return whether the words of its translation must be aligned with its own."""
        return bool(self.terms) or (self.marks is not None and self.marks.needs_origins)


@dataclass(frozen=True, slots=True)
class TranslationPlan:
    """The segments of all texts of a job, and how to join them into texts again.

    frame: the special tokens of the job's languages.
    layouts: one for each text.
    segments: of all texts, in order.
    """

    frame: LanguageTokens
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
                **arguments,
                sampling=sampling_with_own_seed(job.decoding.sampling, segment.place),
                forced_ids=prefix,
                constraint=segment.beginning,
                max_new_tokens=self._max_new_tokens(job, segment.source_ids),
                returns_logprobs=job.returns_scores,
                alignment_heads=job.attention_heads
                if job.needs_attention or (segment.needs_attention and self._has_attention)
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

    def scores(self, job: ScoreJob, frame: LanguageTokens) -> list[GenerationRequest]:
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
        self, job: ScoreJob, frame: LanguageTokens
    ) -> Iterator[tuple[TokenIds, TokenIds]]:
        sources = self._tokenizers.encode_sources([text.strip() for text, _ in job.pairs], frame)
        with tokenizing("translations"):
            targets = self._tokenizers.target.encode_batch([text.strip() for _, text in job.pairs])
        return zip(sources, ((*ids, self._eos) for ids in targets), strict=True)

    def _arguments(self, job: TranslationJob | ScoreJob, frame: LanguageTokens) -> dict[str, Any]:
        """Return what all requests of a job share."""
        arguments = request_arguments(job.decoding, self._tokenizers.target)
        if beam := job.decoding.beam:
            arguments["beam"] = replace(beam, num_counted=frame.num_counted)
        own = {"attention_queries": job.attention_queries, "job_id": job.request_id}
        return {**arguments, **own}

    def _request(
        self, frame: LanguageTokens, request_id: str, source_ids: TokenIds, **fields: Any
    ) -> GenerationRequest:
        """Build a request, with the fields that depend on the bundle and the languages."""
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


def with_alternative_prefixes(
    plan: TranslationPlan, outcomes: Sequence[FinalEvent], count: int, tokenizer: Tokenizer
) -> TranslationPlan:
    """Return the plan with several prefixes for the first segment of each text.

    outcomes: of the plan's probes, see `TranslationRequests`.
    count: number of translations wanted. There are up to two prefixes for each, because some lead
        to the same text in other tokens.
    """
    longer: dict[int, dict[str, Any]] = {}
    for number, end in zip(plan.first_segments, outcomes, strict=True):
        prefix = plan.segments[number].prefixes[0]
        words = _next_words(end, tokenizer)[: 2 * count]
        longer[number] = {"prefixes": tuple((*prefix, word) for word in words) or (prefix,)}
    return plan.with_changes(longer)


def _next_words(end: FinalEvent, tokenizer: Tokenizer) -> list[int]:
    """Return the likeliest next tokens that have text, likeliest first."""
    ids = [token.token_id for token in successful(end).best.tokens.top[-1]]
    return [token_id for token_id in ids if tokenizer.token_bytes(token_id).strip()]


# A translation may need this many times the tokens of its source, and must still fit the target.
_MAX_TARGET_GROWTH = 1.5
_LAST_WORD = re.compile(r"\s?(?<!\S)\S+$")  # tried once a word, not once a character


class TextSegmenter:
    """Splits texts into segments that fit the model, and finds glossary terms and protected text in
    them.

    max_segments: of one job; None for any number.
    known_words: words of the source language that the model knows, if there is a list.
    """

    def __init__(
        self,
        limits: Limits,
        tokens: Tokens,
        tokenizers: TokenizerPair,
        max_segments: int | None = None,
        known_words: KnownWords | None = None,
    ) -> None:
        self._limits = limits
        self._tokens = tokens
        self._tokenizers = tokenizers
        self._source, self._target = tokenizers.source, tokenizers.target
        self._is_lossless = tokenizers.source.is_lossless
        self._beginnings = Beginnings(tokenizers.target)
        self._max_segments = max_segments
        self._known_words = known_words

    def plan(self, job: TranslationJob) -> TranslationPlan:
        """Return the plan of a job whose languages are the model's own codes.

        Raises TooLarge for too many segments, RequestError for a prefix or glossary term that the
        target's vocabulary cannot write.
        """
        frame = self.frame(job.source, job.target)
        glossary = Glossary(job.glossary, self._target)
        layouts, marks = self._layouts(job, frame, glossary)
        self.check_number([text for layout in layouts for text in layout.segments], "sentences")
        segments = self._segments(frame, layouts, marks, glossary)
        plan = TranslationPlan(frame, layouts, segments)
        if not job.target_prefix:
            return plan
        return plan.with_changes(dict.fromkeys(plan.first_segments, self._prefix(job)))

    def frame(self, source: str, target: str) -> LanguageTokens:
        """Return the special tokens of a pair of languages, given by the model's codes."""
        return LanguageTokens.between(self._tokens, source, target)

    def check_number(self, parts: Sequence[object], name: str) -> None:
        if self._max_segments is not None and len(parts) > self._max_segments:
            message = f"at most {self._max_segments} {name} a request, this has {len(parts)}"
            raise TooLarge("text", parts[0], message)

    def _layouts(
        self, job: TranslationJob, frame: LanguageTokens, glossary: Glossary
    ) -> tuple[tuple[TextLayout, ...], list[MarkedSegment | None]]:
        """Return the layout of each text, and the marks of each segment; None for segments that
        have none.
        """
        fits = partial(self._fits, self._max_segment_tokens(frame))
        language = primary_language(job.source)
        if not (job.has_marks or any(has_wrapped_lines(text, language) for text in job.texts)):
            plain = tuple(split_text(text, language, fits) for text in job.texts)
            return plain, [None for layout in plain for _ in layout.segments]
        target = primary_language(job.target)
        protection = Protection(
            job.placeholder_pattern,
            job.protection,
            language,
            target,
            self._known_words,
            glossary.spans,
        )
        reader = MarkedReader(job.markup, protection, job.splitting, fits)
        layouts: list[TextLayout] = []
        marks: list[MarkedSegment | None] = []
        for text in job.texts:
            layout = None if job.needs_attention else reader.plain_layout(text)
            if layout is not None:
                marks += [None] * len(layout.segments)
            else:
                marked = reader.layout(text)
                marks += marked.segments
                layout = marked.plain
            layouts.append(layout)
        return tuple(layouts), marks

    def _segments(
        self,
        frame: LanguageTokens,
        layouts: Sequence[TextLayout],
        marks: Sequence[MarkedSegment | None],
        glossary: Glossary,
    ) -> tuple[Segment, ...]:
        texts = [text for layout in layouts for text in layout.segments]
        places = [place for layout in layouts for place in range(len(layout.segments))]
        sources = self._tokenizers.encode_sources(texts, frame)
        return tuple(
            Segment(text, source_ids, place, glossary.found(text), marks=own_marks)
            for text, source_ids, place, own_marks in zip(
                texts, sources, places, marks, strict=True
            )
        )

    def _prefix(self, job: TranslationJob) -> dict[str, Any]:
        """Return the fields of a text's first segment that the target prefix decides."""
        words, begun = _last_word_apart(job)
        if not (self._target.can_write(words) or job.replaces_unknown):
            raise RequestError("target_prefix", job.target_prefix, NOT_WRITABLE)
        fields: dict[str, Any] = {"prefixes": (tuple(self._target.encode(words)),)}
        if begun:
            fields["beginning"] = self._beginning(job.target_prefix, begun, not words)
        return fields

    def _beginning(self, prefix: str, begun: str, begins_text: bool) -> Constraint:
        """Return a constraint: the next word continues the incomplete word at the end of the
        prefix. If the vocabulary cannot write the incomplete word, the next token must begin with
        it.
        """
        if self._target.can_write(begun):
            begun = self._written(begun)
        elif not self._beginnings.has_token(begun, begins_text):
            raise RequestError("target_prefix", prefix, NOT_WRITABLE)
        return self._beginnings.constraint(begun, begins_text)

    def _written(self, begun: str) -> str:
        """Return the text as the target's tokenizer normalises it."""
        if self._target.is_lossless:
            return begun
        space = " " if begun[0].isspace() else ""
        return space + self._target.decode(self._target.encode(begun.lstrip()))

    def _fits(self, max_tokens: int, segment: str) -> bool:
        """Check the length of a segment. Where a token holds at least a byte of the text, short
        segments need no counting; nor do those of ASCII, which no normalisation makes longer than
        by the space before it.
        """
        if self._is_lossless and len(segment.encode()) <= max_tokens:
            return True
        if segment.isascii() and len(segment) < max_tokens:
            return True
        return len(self._source.encode(segment)) <= max_tokens

    def _max_segment_tokens(self, frame: LanguageTokens) -> int:
        longest = int((self._limits.max_target_tokens - frame.num_given) / _MAX_TARGET_GROWTH)
        if self._limits.max_source_tokens is not None:
            longest = min(longest, self._limits.max_source_tokens - frame.num_around)
        return max(1, longest)


def _last_word_apart(job: TranslationJob) -> tuple[str, str]:
    """Cut a prefix in two: whole words, and the last one, with the space before it, if it may have
    been typed half: if no space follows, and nobody asks what could come right after it.
    """
    prefix = job.target_prefix.lstrip()
    last = _LAST_WORD.search(prefix)
    if last is None or job.alternatives_at_prefix:
        return prefix.rstrip(), ""
    return prefix[: last.start()], last.group()
