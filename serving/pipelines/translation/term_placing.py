"""Puts the terms of a glossary into translations that were made without it.

One after another, each term replaces the words of the translation that attend to it. The model
scores several candidates for each term: the rest unchanged, with another word before the term (an
article, a contraction), and with another text after it. The likeliest candidate that differs little
from the free translation is taken.
"""

import asyncio
import re
import time
import unicodedata
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rapidfuzz.distance import Indel

from serving.bundle.manifest import Manifest
from serving.pipelines.decoding import EnginePort, require_finished
from serving.pipelines.translation.glossary import MatchedTerm, WantedTerms
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.requests import rescore
from serving.pipelines.translation.term_candidates import (
    AlignedTranslation,
    CandidateRequests,
    ReplaceableWords,
    Replacement,
    SourceWords,
)
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.request import (
    AttentionPieces,
    Event,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    is_final,
)
from serving.text.alignment import TokenizedText, map_tokens_to_text
from serving.text.terms import HYPHENATED_WORD
from serving.text.tokenizer import Tokenizer

# What a changed word costs, in nats: measured, see loadtest/LOG.md.
COST_OF_CHANGE = 1.0
COST_OF_ELISION = 10.0  # "l'" before a consonant
_ELIDED = re.compile(r"\w['’]$")
_VOWELS = "aeiouyhœæ"

Result = TypeVar("Result")


class TermPlacing:
    """Puts terms into the translations of one model."""

    def __init__(self, engine: EnginePort, manifest: Manifest, tokenizers: TokenizerPair) -> None:
        self._engine, self._tokenizers = engine, tokenizers
        self._candidates = CandidateRequests(manifest, tokenizers.target, engine.max_rows)

    async def place_terms(
        self,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        outcomes: Sequence[FinalEvent],
        accepted_at: float,
    ) -> list[FinalEvent]:
        """Return the final events of a plan's requests, with the terms of their segments in place.

        accepted_at: when the job was accepted, as `time.perf_counter` tells.

        Raises DeadlineExceeded, the errors of failed requests, and those of the engine.
        """
        work = [*zip(plan.segments_of_requests(), requests, outcomes, strict=True)]
        if not any(segment.terms for segment, _, _ in work):
            return [*outcomes]
        await asyncio.to_thread(self._candidates.read_vocabulary)
        return await gather_all(
            self._place_in_request(plan.special_tokens, segment, request, outcome, accepted_at)
            for segment, request, outcome in work
        )

    async def stream(
        self,
        plan: TranslationPlan,
        requests: Sequence[GenerationRequest],
        batches: AsyncGenerator[list[Event], None],
    ) -> AsyncGenerator[list[Event], None]:
        """Yield events as they arrive. Those of a request with terms follow when its terms are in
        place.

        batches: the events of the requests, those of one step together.
        """
        accepted_at = time.perf_counter()
        with_terms: dict[str, tuple[Segment, GenerationRequest]] = {
            request.request_id: (segment, request)
            for segment, request in zip(plan.segments_of_requests(), requests, strict=True)
            if segment.terms
        }
        if with_terms:
            await asyncio.to_thread(self._candidates.read_vocabulary)
        tasks: list[asyncio.Task[FinalEvent]] = []
        try:
            async with aclosing(batches):
                async for batch in batches:
                    yield [event for event in batch if event.request_id not in with_terms]
                    for event in batch:
                        if is_final(event) and event.request_id in with_terms:
                            segment, request = with_terms[event.request_id]
                            work = self._place_in_request(
                                plan.special_tokens, segment, request, event, accepted_at
                            )
                            tasks.append(asyncio.create_task(work))
            for task in asyncio.as_completed(tasks):
                yield [await task]
        finally:
            for task in tasks:
                task.cancel()

    async def _place_in_request(
        self,
        special_tokens: LanguagePairTokens,
        segment: Segment,
        request: GenerationRequest,
        event: FinalEvent,
        accepted_at: float,
    ) -> FinalEvent:
        """Return the final event of a request, with the terms in each of its hypotheses."""
        if not segment.terms:
            return event
        end = require_finished(event)
        pieces = self._tokenizers.source_pieces(segment.source_ids, special_tokens)
        source = map_tokens_to_text(TokenizedText.from_pieces(pieces), segment.text)
        if request.job_accepted_at is None:
            request = replace(request, job_accepted_at=accepted_at)
        sentence = _Sentence(SourceWords(source), WantedTerms(segment.terms), request)
        revisions = [
            _Revision(
                *(self._engine, self._candidates, self._tokenizers.target),
                *(sentence, hypothesis, number),
            )
            for number, hypothesis in enumerate(end.hypotheses)
        ]
        await gather_all(revision.place_all_terms() for revision in revisions)
        return _with_revisions(request, end, revisions)


def _with_revisions(
    request: GenerationRequest, end: FinishedEvent, revisions: Sequence["_Revision"]
) -> FinishedEvent:
    """Return the final event of a request with its revised hypotheses, best first."""
    if request.beam is not None:
        revisions = sorted(revisions, key=lambda revision: _rank(revision.hypothesis))
    num_revised = sum(revision.num_generated for revision in revisions)
    return replace(
        end,
        num_generated_tokens=end.num_generated_tokens + num_revised,
        hypotheses=tuple(revision.hypothesis for revision in revisions),
        attention_pieces=revisions[0].attention_pieces or end.attention_pieces,
    )


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return hypothesis.reason is FinishReason.CONSTRAINT, -hypothesis.score


async def gather_all(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return all results; if one fails or the caller is cancelled, cancel the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class _Sentence:
    """request: the one that was answered, as a part of an accepted job."""

    source_words: SourceWords
    wanted_terms: WantedTerms
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A translation with one more term. score: higher is better."""

    replacement: Replacement
    hypothesis: Hypothesis
    attention_pieces: AttentionPieces
    score: float


class _Revision:
    """One translation of a sentence, in which terms are placed one by one, from left to right.

    attention_pieces: of the last request that changed it; empty if none did.
    num_generated: tokens of all its requests.
    """

    def __init__(
        self,
        engine: EnginePort,
        candidates: CandidateRequests,
        tokenizer: Tokenizer,
        sentence: _Sentence,
        hypothesis: Hypothesis,
        number: int,
    ) -> None:
        self._engine, self._candidates, self._tokenizer = engine, candidates, tokenizer
        self._sentence = sentence
        self._name = f"{sentence.request.request_id}-{number}"
        self._num_requests = 0
        self._draft = self._align(hypothesis)
        self.hypothesis = hypothesis
        self.attention_pieces: AttentionPieces = ()
        self.num_generated = 0

    async def place_all_terms(self) -> None:
        """Place all terms. Raises DeadlineExceeded, and the errors of the engine."""
        wanted_terms = self._sentence.wanted_terms
        given_up: list[MatchedTerm] = []
        placed: list[MatchedTerm] = []
        while (next_places := self._draft.next_places(wanted_terms, given_up)) is not None:
            term, places = next_places
            if (candidate := await self._try_term(term, places)) is None:
                given_up.append(term)
                continue
            placed.append(term)
            self.attention_pieces = candidate.attention_pieces
            self._draft = self._align(candidate.hypothesis)
        self.hypothesis = self._draft.with_own_attention(wanted_terms, placed)
        is_whole = self.hypothesis.reason is FinishReason.STOP
        if is_whole and wanted_terms.num_missing(self._draft.text):
            self.hypothesis = replace(self.hypothesis, reason=FinishReason.CONSTRAINT)

    async def _try_term(
        self, term: MatchedTerm, places: Sequence[ReplaceableWords]
    ) -> _Candidate | None:
        """Return the best candidate with the term in one of these places, or None.

        With several places or translations of the term, the likeliest plain replacement is taken
        first, and the other candidates are made only for that one.
        """
        request, build = self._sentence.request, self._candidates
        replacements = [
            Replacement(self._draft, place, text) for place in places for text in term.translations
        ]
        if len(replacements) > 1:
            plain = await self._run(
                [(build.plain(request, replacement), replacement) for replacement in replacements]
            )
            if not plain:
                return None
            replacements = [_best(plain).replacement]
        [replacement] = replacements
        requests = [build.plain(request, replacement), *build.others(request, replacement)]
        candidates = await self._run([(request, replacement) for request in requests])
        return _best(candidates) if candidates else None

    async def _run(self, work: Sequence[tuple[GenerationRequest, Replacement]]) -> list[_Candidate]:
        """Return the results in which fewer terms are missing than now."""
        requests = []
        for request, _ in work:
            name = f"{self._name}-{self._num_requests}"
            requests.append(replace(request, request_id=name))
            self._num_requests += 1
        outcomes = await self._engine.run(requests)
        wanted_terms = self._sentence.wanted_terms
        num_missing = wanted_terms.num_missing(self._draft.text)
        candidates = []
        for (_, replacement), event in zip(work, outcomes, strict=True):
            end = require_finished(event)
            self.num_generated += end.num_generated_tokens
            for hypothesis in end.hypotheses:
                text = self._align(hypothesis).text
                is_whole = hypothesis.reason is not FinishReason.CONSTRAINT
                if is_whole and wanted_terms.num_missing(text) < num_missing:
                    score = sum(hypothesis.logprobs) - _cost(replacement, text)
                    rescored = rescore(self._sentence.request, hypothesis)
                    pieces = end.attention_pieces
                    candidates.append(_Candidate(replacement, rescored, pieces, score))
        return candidates

    def _align(self, hypothesis: Hypothesis) -> AlignedTranslation:
        sentence = self._sentence
        return AlignedTranslation(
            hypothesis, sentence.source_words, self._tokenizer, sentence.request
        )


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    return max(candidates, key=lambda candidate: candidate.score)


def _cost(replacement: Replacement, text: str) -> float:
    """Return what to subtract from a candidate's score: for each word that differs from the plain
    replacement, and for an elided word before a term that begins with a consonant.
    """
    plain_words = HYPHENATED_WORD.findall(replacement.result.lower())
    words = HYPHENATED_WORD.findall(text.lower())
    # difflib takes time with the cube of how often one word is repeated: 75 ms for 200 words.
    num_changes = Indel.distance(plain_words, words)
    is_elided = _ELIDED.search(text[: text.lower().find(replacement.text.lower())])
    is_wrong = is_elided and not _begins_with_vowel(replacement.text)
    return COST_OF_CHANGE * num_changes + COST_OF_ELISION * bool(is_wrong)


def _begins_with_vowel(word: str) -> bool:
    return unicodedata.normalize("NFD", word[:1].lower())[:1] in _VOWELS
