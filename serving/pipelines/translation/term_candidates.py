"""Builds the requests whose results are the candidates for a translation with a term."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from serving.bundle.manifest import Manifest
from serving.parameters import GREEDY, MAX_WORDS, BeamParams, TokenIds
from serving.pipelines.translation.glossary import capitalised
from serving.pipelines.translation.term_places import AlignedTranslation, Place
from serving.request import FinishReason, GenerationRequest, Ids
from serving.text.guides.borders import WordBorders
from serving.text.guides.insertion import Insertion
from serving.text.terms import HYPHENATED_WORD, term_pattern
from serving.text.tokenizer import Tokenizer

NUM_BEAMS = 4
MAX_FREE_TOKENS = 2  # with which the model may replace the word before a term


@dataclass(frozen=True, slots=True)
class Replacement:
    """Words of a translation and the text of the term that replaces them."""

    draft: AlignedTranslation
    place: Place
    text: str

    @property
    def result(self) -> str:
        """Return the translation with only these words replaced."""
        span = self.place.span
        return self.draft.text[: span.start] + self.text + self.draft.text[span.end :]

    @property
    def replaced(self) -> str:
        return self.draft.text[self.place.span.start : self.place.span.end]


class CandidateRequests:
    """Builds requests from the one by which a segment was translated without its terms."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._tokens, self._tokenizer = manifest.tokens, tokenizer
        self._max_target_tokens = manifest.limits.max_target_tokens
        self._borders = WordBorders(tokenizer)

    def read_vocabulary(self) -> None:
        """Sort the tokens of the vocabulary, which is slow the first time."""
        _ = self._borders.opening_ids, self._inner_ids

    @cached_property
    def _inner_ids(self) -> Ids:
        return np.array(sorted(self._borders.inner_ids), np.int64)

    def plain(self, request: GenerationRequest, replacement: Replacement) -> GenerationRequest:
        """Return the request that scores the translation with only these words replaced."""
        start = replacement.place.span.start
        prefix = self._before(replacement.draft, start)
        ids = (*prefix, *self._term(replacement, prefix), *self._after(replacement))
        return replace(
            request,
            forced_ids=ids[: len(request.forced_ids) + self._max_new_tokens(request)],
            constraint=None,
            max_new_tokens=0,
            beam=None,
            sampling=GREEDY,
            tells_logprobs=True,
        )

    def others(
        self, request: GenerationRequest, replacement: Replacement
    ) -> Iterator[GenerationRequest]:
        """Yield requests in which the model may also change the words before the term, or all words
        after it. If tokens were sampled, those after the term stay.
        """
        place, draft = replacement.place, replacement.draft
        starts = [(place.span.start, 0)]
        starts += [
            (start, num + 1) for start in place.free_starts for num in range(MAX_FREE_TOKENS)
        ]
        rests: list[TokenIds] = [self._after(replacement)]
        if request.sampling.temperature == 0:
            rests.append(())
        for start, num_free in starts:
            prefix = self._before(draft, start)
            num_new = self._max_new_tokens(request) + len(request.forced_ids) - len(prefix)
            for rest in rests:
                if num_new > 0 and (num_free or not rest):
                    insertion = self._insertion(replacement, prefix, num_free, rest)
                    yield self._search(request, replacement, prefix, num_new, insertion)

    def _insertion(
        self, replacement: Replacement, prefix: TokenIds, num_free: int, rest: TokenIds
    ) -> Insertion:
        spaced, bare = self._spellings(replacement.text)
        if not num_free:
            spaced = self._term(replacement, prefix)
        beginnings = [ids[0] for ids in self._spellings(replacement.replaced)]
        unwanted_ids = np.array([*self._tokens.stop, *beginnings], np.int64)
        opening_ids = self._borders.opening_ids
        return Insertion(num_free, spaced, bare, rest, opening_ids, self._inner_ids, unwanted_ids)

    def _search(
        self,
        request: GenerationRequest,
        replacement: Replacement,
        prefix: TokenIds,
        num_new: int,
        insertion: Insertion,
    ) -> GenerationRequest:
        processors = request.processors
        bad_words = (*processors.bad_words, *self._unwanted(replacement))
        num_left = processors.min_tokens + len(request.forced_ids) - len(prefix)
        beam = request.beam or BeamParams(NUM_BEAMS)
        return replace(
            request,
            forced_ids=prefix,
            constraint=insertion,
            max_new_tokens=num_new,
            beam=replace(beam, num_beams=NUM_BEAMS, num_hypotheses=NUM_BEAMS),
            sampling=GREEDY,
            processors=replace(
                processors, bad_words=bad_words[:MAX_WORDS], min_tokens=max(num_left, 0)
            ),
            tells_logprobs=True,
            streams=False,
        )

    def _unwanted(self, replacement: Replacement) -> list[TokenIds]:
        """Return the replaced words, so that the model does not write them after the term. Empty if
        they are a part of the term or occur elsewhere in the translation.
        """
        replaced = replacement.replaced
        if term_pattern(replaced).search(replacement.result):
            return []
        return self._spellings(replaced)

    def _spellings(self, text: str) -> list[TokenIds]:
        """Return the tokens of a text within another one, with a space before it and without."""
        return [tuple(self._tokenizer.encode_inside(space + text)) for space in (" ", "")]

    def _max_new_tokens(self, request: GenerationRequest) -> int:
        """Return how many tokens may come after the request's forced ones."""
        num_given = len(self._tokens.prompt_prefix) + len(request.prompt_ids)
        num_left = self._max_target_tokens - num_given - len(request.forced_ids)
        return num_left if request.max_new_tokens is None else min(request.max_new_tokens, num_left)

    def _term(self, replacement: Replacement, prefix: TokenIds) -> TokenIds:
        """Return the tokens of the term after a prefix, capitalised if it begins the sentence."""
        before = replacement.draft.text[: replacement.place.span.start]
        text = replacement.text
        if not HYPHENATED_WORD.search(before) and replacement.replaced[:1].isupper():
            text = capitalised(text)
        if not prefix:
            return tuple(self._tokenizer.encode(text))
        space = "" if prefix[-1] in self._borders.opening_ids else " "
        return tuple(self._tokenizer.encode_inside(space + text))

    def _before(self, draft: AlignedTranslation, end: int) -> TokenIds:
        """Return the tokens of the text up to a character, without the space before it."""
        spans = draft.target.spans
        number = next((n for n, span in enumerate(spans) if span.end > end), len(spans))
        cut = draft.text[spans[number].start : end].rstrip() if number < len(spans) else ""
        return (*draft.hypothesis.token_ids[:number], *self._tokens_of(cut, number == 0))

    def _after(self, replacement: Replacement) -> TokenIds:
        """Return the tokens after the replaced words, with the end token if there was one."""
        draft, start = replacement.draft, replacement.place.span.end
        spans = draft.target.spans
        number = next((n for n, span in enumerate(spans) if span.start >= start), len(spans))
        until = spans[number].start if number < len(spans) else len(draft.text)
        ids = (
            *self._tokens_of(draft.text[start:until].rstrip()),
            *draft.hypothesis.token_ids[number:],
        )
        has_ended = draft.hypothesis.reason is FinishReason.STOP
        return (*ids, self._tokens.eos) if has_ended else ids

    def _tokens_of(self, text: str, begins_text: bool = False) -> Sequence[int]:
        if not text.strip():
            return ()
        return self._tokenizer.encode(text) if begins_text else self._tokenizer.encode_inside(text)
