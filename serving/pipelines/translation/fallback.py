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

Given translations, whole ones of a translation memory, are not checked; those that were begun, by a
target prefix, only for loops. Nor are those of a job without protection, which asks for what the
model writes by itself.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.engine.decoding.repetition import NGRAM_SIZE, LoopDetector, loop_start
from serving.pipelines.decoding import require_finished
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.omission import SourceWords
from serving.pipelines.translation.rendering import SegmentRenderer
from serving.pipelines.translation.requests import Segment, TranslationPlan, rescored
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
from serving.text.markup.marked_translation import MarkedTranslation
from serving.text.markup.tokens import Role, join_raw
from serving.text.tokenizer import Tokenizer

NUM_BEAMS = 4
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

    plan: the job's, in which segments that stay in their source language are given.
    """

    def __init__(
        self,
        terms: TermPlacing,
        tokenizers: TokenizerPair,
        job: TranslationJob,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        renderer: SegmentRenderer,
    ) -> None:
        self.plan = plan
        self._terms, self._tokenizers, self._job = terms, tokenizers, job
        self._requests, self._renderer = requests, renderer
        self._accepted_at = time.perf_counter()
        self._places = [
            place for place, segment in enumerate(plan.segments) for _ in segment.prefixes
        ]

    async def run(self) -> list[FinishedEvent]:
        """Return the final events of the requests, with those of second tries that are better.

        Raises as `TermPlacing.run` does.
        """
        ends = [*map(require_finished, await self._terms.run(self.plan, self._requests))]
        if len(ends) > _MANY_REQUESTS:
            tries = await asyncio.to_thread(self._second_tries, ends)
        else:
            tries = self._second_tries(ends)
        repeated = await gather_all(self._repeated(n, ends[n], each) for n, each in tries.items())
        for number, end in zip(tries, repeated, strict=True):
            ends[number] = end
        return ends

    async def stream(self) -> AsyncGenerator[list[Event], None]:
        """Yield events as they arrive; of a translation that may be repeated, only the tokens that
        stay. The final event of a repeated one is that of its second try.
        """
        numbers = {request.request_id: n for n, request in enumerate(self._requests)}
        tokens = [self._held_tokens(number) for number in range(len(self._requests))]
        tasks: list[asyncio.Task[FinishedEvent]] = []
        try:
            async with aclosing(self._terms.stream(self.plan, self._requests)) as batches:
                async for batch in batches:
                    if not self._job.protection:
                        yield batch
                        continue
                    released: list[Event] = []
                    for event in batch:
                        number = numbers[event.request_id]
                        if isinstance(event, TokenEvent):
                            released += tokens[number].push(event)
                        elif not isinstance(event, FinishedEvent):
                            released.append(event)
                        elif second := self._second_try(number, event):
                            work = self._repeated(number, event, second)
                            tasks.append(asyncio.create_task(work))
                        else:
                            released += [*tokens[number].rest(), event]
                    yield released
            for task in asyncio.as_completed(tasks):
                yield [await task]
        finally:
            for each in tasks:
                each.cancel()

    def _second_tries(self, ends: Sequence[FinishedEvent]) -> dict[int, SecondTry]:
        """Return what is asked once more, by the numbers of the requests."""
        tries = ((number, self._second_try(number, end)) for number, end in enumerate(ends))
        return {number: second for number, second in tries if second}

    def _second_try(self, number: int, end: FinishedEvent) -> SecondTry | None:
        """Return what to ask instead of a request; None if its outcome is accepted."""
        segment, request = self.plan.segments[self._places[number]], self._requests[number]
        if segment.memory_score is not None or not self._job.protection:
            return None
        start = self._loop_start(request, end.best)
        if start is not None:
            return SecondTry(_without_loop(request, segment, end, start), False)
        if self._omits_words(segment, end.best):
            return SecondTry(_searching(request, self._terms.max_rows), True)
        return None

    def _loop_start(self, request: GenerationRequest, hypothesis: Hypothesis) -> int | None:
        source_ids, num_forced = request.source_ids or request.prompt_ids, len(request.forced_ids)
        return loop_start(hypothesis.tokens.ids, source_ids, num_forced)

    @property
    def _shows_tokens(self) -> bool:
        """Return whether the job asks for more of the model's tokens than a text."""
        return self._job.needs_attention or self._job.returns_quality

    def _omits_words(self, segment: Segment, hypothesis: Hypothesis) -> bool:
        """Return whether words of a short segment became nothing in a translation that has ended.

        Most translations are not of such segments, or have a word that is no copy.
        """
        if not _is_whole(segment) or hypothesis.reason is not FinishReason.STOP:
            return False
        words = self._words(segment)
        if not words.are_checked:
            return False
        marked = self._renderer.marked(segment, hypothesis)
        if marked is not None and marked.lacks_most_words():
            return True
        return words.are_omitted(self._translated_text(marked, hypothesis))

    def _has_all_words(self, segment: Segment, hypothesis: Hypothesis) -> bool:
        """Return whether a second translation of such a segment may be taken."""
        words = self._words(segment)
        marked = self._renderer.marked(segment, hypothesis)
        if marked is not None and marked.lacks_most_words():
            return False
        text = self._translated_text(marked, hypothesis)
        return words.are_all_in(text, primary_language(self._job.target))

    def _words(self, segment: Segment) -> SourceWords:
        return SourceWords(_text_to_translate(segment), primary_language(self._job.source))

    def _translated_text(self, marked: MarkedTranslation | None, hypothesis: Hypothesis) -> str:
        if marked is not None:
            return marked.translated_text()
        return self._tokenizers.target.decode(hypothesis.tokens.ids)

    async def _repeated(
        self, number: int, first: FinishedEvent, second: SecondTry
    ) -> FinishedEvent:
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
        plan = replace(self.plan, layouts=(), segments=(segment,))
        [event] = await self._terms.run(plan, [request])
        end = require_finished(event)
        hypotheses = [rescored(original, hypothesis) for hypothesis in end.hypotheses]
        if second.omits_words:
            count = original.beam.num_hypotheses if original.beam else 1
            whole = [each for each in hypotheses if self._has_all_words(segment, each)]
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
        """Leave a segment in its source language, unless more of its tokens is asked for."""
        if not self._shows_tokens:
            given = _as_written(self.plan.segments[place])
            self.plan = self.plan.with_changes({place: {"given": given}})

    def _held_tokens(self, number: int) -> "_HeldTokens":
        segment, request = self.plan.segments[self._places[number]], self._requests[number]
        source_ids = request.source_ids or request.prompt_ids
        repetition = LoopDetector(source_ids, len(request.forced_ids))
        words = None
        if segment.marks is None or segment.marks.is_plain_text:
            words = self._words(segment)
            if not (words.are_checked and _is_whole(segment)):
                words = None
        return _HeldTokens(repetition, words, self._tokenizers.target)


class _HeldTokens:
    """The tokens of a translation that may be repeated, until it is certain that they stay.

    words: of its source, as long as they may have been left out; None if not.
    """

    def __init__(
        self, repetition: LoopDetector, words: SourceWords | None, tokenizer: Tokenizer
    ) -> None:
        self._repetition, self._words, self._tokenizer = repetition, words, tokenizer
        self._ids: list[int] = []
        self._events: list[TokenEvent] = []
        self._num_released = 0

    def push(self, event: TokenEvent) -> list[TokenEvent]:
        """Return the tokens that are certain since the last one, in order."""
        self._repetition.push(event.token_id)
        self._events.append(event)
        if self._words is not None:
            self._ids.append(event.token_id)
            if self._words.may_be_omitted(self._tokenizer.decode(self._ids)):
                return []
            self._words = None
        return self._released(self._repetition.num_certain)

    def rest(self) -> list[TokenEvent]:
        """Return the tokens that are left, after the translation was accepted."""
        return self._released(self._num_released + len(self._events))

    def _released(self, num_certain: int) -> list[TokenEvent]:
        count = max(num_certain - self._num_released, 0)
        events, self._events = self._events[:count], self._events[count:]
        self._num_released += len(events)
        return events


def _text_to_translate(segment: Segment) -> str:
    """Return the text of a segment without what is kept."""
    if segment.marks is None:
        return segment.text
    tokens = segment.marks.tokens
    return "".join(token.text if token.role is Role.TEXT else " " for token in tokens if token.text)


def _as_written(segment: Segment) -> str:
    return segment.text if segment.marks is None else join_raw(segment.marks.tokens)


def _is_whole(segment: Segment) -> bool:
    """Return whether all of a segment's translation was left to the model."""
    return segment.prefixes == ((),) and segment.beginning is None


def _without_loop(
    request: GenerationRequest, segment: Segment, end: FinishedEvent, start: int
) -> GenerationRequest:
    """Return the request that goes on from where a loop began; from its own beginning if terms are
    put into the translation, which must not be given then.
    """
    start = len(request.forced_ids) if segment.terms else start
    num_made = start - len(request.forced_ids)
    processors = request.processors
    size = min(processors.no_repeat_ngram_size or NGRAM_SIZE, NGRAM_SIZE)
    most = _MAX_GROWTH * len(segment.source_ids) + _FEWEST_TOKENS
    if request.max_new_tokens is not None:
        most = min(most, request.max_new_tokens)
    return replace(
        request,
        forced_ids=tuple(end.best.tokens.ids[:start]),
        constraint=None if num_made else request.constraint,
        max_new_tokens=max(most - num_made, 1),
        processors=replace(processors, no_repeat_ngram_size=size),
        streams=False,
    )


def _searching(request: GenerationRequest, max_rows: int) -> GenerationRequest | None:
    """Return the request as a beam search with several hypotheses; None if there is one row."""
    beam = request.beam or BeamParams(1)
    num_beams = max(beam.num_beams, min(NUM_BEAMS, max_rows))
    if num_beams == 1:
        return None
    return replace(
        request,
        beam=replace(beam, num_beams=num_beams, num_hypotheses=num_beams),
        sampling=GREEDY,
        streams=False,
    )
