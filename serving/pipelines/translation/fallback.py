"""Translate segments once more whose translation cannot be right, with other options: the fallback
of Whisper's decoding (Radford et al. 2023), for the faults of translators.

After the outcomes of a plan have come, each passes the checks. An outcome that does not is not
accepted, and its segment gets one further request:

- A translation that loops goes on from where its loop began, without repeated n-grams.
- Where words of a short source became nothing, the first hypothesis of a beam search that lacks
  nothing is taken. If there is none, or an engine of one row cannot search, the segment stays in
  its source language.

A second try is a part of the job that was accepted: it asks for no more rows than the engine has,
waits however much waits, and ends with the timeout of the first.

Translations of a translation memory are not checked; those that were begun, by a target prefix,
only for loops. A job without protection, which asks for what the model writes by itself, has no
fallback.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.engine.decoding.repetition import NGRAM_SIZE, LoopDetector, loop_start
from serving.pipelines.decoding import EnginePort, require_finished
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.omission import OmissionCheck
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.rendering import SegmentRenderer
from serving.pipelines.translation.requests import rescore
from serving.pipelines.translation.term_placing import TermPlacing, gather_all
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.parameters import GREEDY, BeamParams
from serving.requests.request import (
    Event,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    TokenEvent,
)
from serving.text.languages import primary_language
from serving.text.markup.tokens import Role, join_raw
from serving.text.tokenizer import Tokenizer

_NUM_BEAMS = 4
_MANY_REQUESTS = 64  # whose outcomes are checked on another thread, so that other requests go on
# Tokens of the second translation of a loop: twice those of its source, and some for short ones.
_MAX_GROWTH, _FEWEST_TOKENS = 2, 10


@dataclass(frozen=True, slots=True)
class SecondTry:
    """What is asked once more.

    request: None if the engine cannot answer it.
    omits_words: why it is asked: words had become nothing; else the translation looped.
    """

    request: GenerationRequest | None
    omits_words: bool


class Fallback:
    """Checks the outcomes of one job's requests, and repeats those that are not accepted.

    plan: the job's, in which segments that stay in their source language have fixed translations.
    accepted_at: when the job was accepted, as `time.perf_counter` tells.
    """

    def __init__(
        self,
        engine: EnginePort,
        terms: TermPlacing,
        tokenizers: TokenizerPair,
        job: TranslationJob,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        renderer: SegmentRenderer,
        accepted_at: float,
    ) -> None:
        self.plan = plan
        self._engine, self._terms = engine, terms
        self._tokenizers, self._job = tokenizers, job
        self._requests, self._renderer = requests, renderer
        self._accepted_at = accepted_at
        self._places = [
            place for place, segment in enumerate(plan.segments) for _ in segment.prefixes
        ]

    async def repeat_rejected(self, ends: list[FinishedEvent]) -> list[FinishedEvent]:
        """Return the final events of the requests, with those of second tries that are better.

        Raises DeadlineExceeded, the errors of failed requests, and those of the engine.
        """
        if len(ends) > _MANY_REQUESTS:
            second_tries = await asyncio.to_thread(self._second_tries, ends)
        else:
            second_tries = self._second_tries(ends)
        if not second_tries:
            return ends
        repeated = await gather_all(
            self._repeat(number, ends[number], second) for number, second in second_tries.items()
        )
        by_number = dict(zip(second_tries, repeated, strict=True))
        return [by_number.get(number, end) for number, end in enumerate(ends)]

    async def stream(
        self, batches: AsyncGenerator[list[Event], None]
    ) -> AsyncGenerator[list[Event], None]:
        """Yield events as they arrive; of a translation that may be repeated, only the tokens that
        stay. The final event of a repeated one is that of its second try.

        batches: the events of the requests, those of one step together.
        """
        numbers = {request.request_id: n for n, request in enumerate(self._requests)}
        tokens = [self._held_tokens(number) for number in range(len(self._requests))]
        tasks: list[asyncio.Task[FinishedEvent]] = []
        try:
            async with aclosing(batches):
                async for batch in batches:
                    released: list[Event] = []
                    for event in batch:
                        number = numbers[event.request_id]
                        if isinstance(event, TokenEvent):
                            released += tokens[number].push(event)
                        elif not isinstance(event, FinishedEvent):
                            released.append(event)
                        elif second := self._second_try(number, event):
                            work = self._repeat(number, event, second)
                            tasks.append(asyncio.create_task(work))
                        else:
                            released += [*tokens[number].release_all(), event]
                    yield released
            for task in asyncio.as_completed(tasks):
                yield [await task]
        finally:
            for repetition in tasks:
                repetition.cancel()

    def _second_tries(self, ends: Sequence[FinishedEvent]) -> dict[int, SecondTry]:
        """Return what is asked once more, by the numbers of the requests."""
        second_tries = {}
        for number, end in enumerate(ends):
            if second := self._second_try(number, end):
                second_tries[number] = second
        return second_tries

    def _second_try(self, number: int, end: FinishedEvent) -> SecondTry | None:
        """Return what to ask instead of a request; None if its outcome is accepted."""
        segment, request = self.plan.segments[self._places[number]], self._requests[number]
        if segment.memory_score is not None:
            return None
        source_ids = request.source_ids or request.prompt_ids
        start = loop_start(end.best.tokens.ids, source_ids, len(request.forced_ids))
        if start is not None:
            return SecondTry(_without_loop(request, segment, end, start), False)
        if self._omits_words(segment, end.best):
            return SecondTry(_as_beam_search(request, self._engine.max_rows), True)
        return None

    def _omits_words(self, segment: Segment, hypothesis: Hypothesis) -> bool:
        """Return whether words of a short segment became nothing in a translation that has ended.

        Most translations are not of such segments, or have a word that is no copy.
        """
        if not _is_whole(segment) or hypothesis.reason is not FinishReason.STOP:
            return False
        check = self._omission_check(segment)
        if not check.is_needed:
            return False
        if (marked := self._renderer.find_marks(segment, hypothesis)) is not None:
            return marked.lacks_most_words() or check.lacks_words(marked.translated_text())
        return check.lacks_words(self._tokenizers.target.decode(hypothesis.tokens.ids))

    def _has_all_words(self, segment: Segment, hypothesis: Hypothesis) -> bool:
        """Return whether a second translation of such a segment may be taken."""
        if (marked := self._renderer.find_marks(segment, hypothesis)) is not None:
            if marked.lacks_most_words():
                return False
            text = marked.translated_text()
        else:
            text = self._tokenizers.target.decode(hypothesis.tokens.ids)
        check = self._omission_check(segment)
        return check.has_all_words(text, primary_language(self._job.target))

    def _omission_check(self, segment: Segment) -> OmissionCheck:
        """Compare without what is kept."""
        text = segment.text
        if segment.marks is not None:
            tokens = segment.marks.tokens
            text = "".join(
                token.text if token.role is Role.TEXT else " " for token in tokens if token.text
            )
        return OmissionCheck(text, primary_language(self._job.source))

    async def _repeat(self, number: int, first: FinishedEvent, second: SecondTry) -> FinishedEvent:
        """Return the final event of a request after its second try. The segment changes as it was
        read for that, or stays as it is written if both tries leave words out.
        """
        original, place = self._requests[number], self._places[number]
        if second.request is None:
            self._keep_source(place)
            return first
        request = replace(
            second.request,
            request_id=f"{original.request_id}-again",
            job_accepted_at=self._accepted_at,
            ends_loops=False,
        )
        segment = replace(self.plan.segments[place], prefixes=(request.forced_ids,))
        [event] = await self._engine.run([request])
        if segment.terms:
            plan = replace(self.plan, layouts=(), segments=(segment,))
            [event] = await self._terms.place_terms(plan, [request], [event], self._accepted_at)
        end = require_finished(event)
        hypotheses = [rescore(original, hypothesis) for hypothesis in end.hypotheses]
        if second.omits_words:
            count = original.beam.num_hypotheses if original.beam else 1
            whole = [
                hypothesis for hypothesis in hypotheses if self._has_all_words(segment, hypothesis)
            ]
            hypotheses = whole[:count] or [*first.hypotheses]
            if not whole:
                self._keep_source(place)
        return replace(
            end,
            request_id=original.request_id,
            hypotheses=tuple(hypotheses),
            num_prompt_tokens=first.num_prompt_tokens,
            num_generated_tokens=first.num_generated_tokens + end.num_generated_tokens,
        )

    def _keep_source(self, place: int) -> None:
        """Leave a segment in its source language, unless the job asks for more of the model's
        tokens than a text.
        """
        if not (self._job.needs_attention or self._job.returns_quality):
            segment = self.plan.segments[place]
            text = segment.text if segment.marks is None else join_raw(segment.marks.tokens)
            self.plan = self.plan.with_changes({place: {"fixed_translation": text}})

    def _held_tokens(self, number: int) -> "_HeldTokens":
        segment, request = self.plan.segments[self._places[number]], self._requests[number]
        source_ids = request.source_ids or request.prompt_ids
        loop_detector = LoopDetector(source_ids, len(request.forced_ids))
        check = None
        if not segment.has_inner_marks and _is_whole(segment):
            check = self._omission_check(segment)
            if not check.is_needed:
                check = None
        return _HeldTokens(loop_detector, check, self._tokenizers.target)


class _HeldTokens:
    """The tokens of a translation that may be repeated, until it is certain that they stay.

    check: of its words, as long as some may have been left out; None if not.
    """

    def __init__(
        self, loop_detector: LoopDetector, check: OmissionCheck | None, tokenizer: Tokenizer
    ) -> None:
        self._loop_detector, self._check, self._tokenizer = loop_detector, check, tokenizer
        self._ids: list[int] = []
        self._events: list[TokenEvent] = []
        self._num_released = 0

    def push(self, event: TokenEvent) -> list[TokenEvent]:
        """Return the tokens that are certain since the last one, in order."""
        self._loop_detector.push(event.token_id)
        self._events.append(event)
        if self._check is not None:
            self._ids.append(event.token_id)
            if self._check.may_lack_words(self._tokenizer.decode(self._ids)):
                return []
            self._check = None
        return self._release(self._loop_detector.num_certain)

    def release_all(self) -> list[TokenEvent]:
        """Return the remaining tokens, after the translation was accepted."""
        return self._release(self._num_released + len(self._events))

    def _release(self, num_certain: int) -> list[TokenEvent]:
        count = max(num_certain - self._num_released, 0)
        events, self._events = self._events[:count], self._events[count:]
        self._num_released += len(events)
        return events


def _is_whole(segment: Segment) -> bool:
    """Return whether all of a segment's translation was left to the model."""
    return segment.prefixes == ((),) and segment.beginning is None


def _without_loop(
    request: GenerationRequest, segment: Segment, end: FinishedEvent, start: int
) -> GenerationRequest:
    """Return the request that goes on from where a loop began; from its own beginning if terms are
    put into the translation, which must not be forced then.
    """
    start = len(request.forced_ids) if segment.terms else start
    num_kept = start - len(request.forced_ids)
    processors = request.processors
    size = min(processors.no_repeat_ngram_size or NGRAM_SIZE, NGRAM_SIZE)
    max_new_tokens = _MAX_GROWTH * len(segment.source_ids) + _FEWEST_TOKENS
    if request.max_new_tokens is not None:
        max_new_tokens = min(max_new_tokens, request.max_new_tokens)
    return replace(
        request,
        forced_ids=tuple(end.best.tokens.ids[:start]),
        constraint=None if num_kept else request.constraint,
        max_new_tokens=max(max_new_tokens - num_kept, 1),
        processors=replace(processors, no_repeat_ngram_size=size),
        streams=False,
    )


def _as_beam_search(request: GenerationRequest, max_rows: int) -> GenerationRequest | None:
    """Return the request as a beam search with several hypotheses; None if there is one row."""
    beam = request.beam or BeamParams(1)
    num_beams = max(beam.num_beams, min(_NUM_BEAMS, max_rows))
    if num_beams == 1:
        return None
    return replace(
        request,
        beam=replace(beam, num_beams=num_beams, num_hypotheses=num_beams),
        sampling=GREEDY,
        streams=False,
    )
