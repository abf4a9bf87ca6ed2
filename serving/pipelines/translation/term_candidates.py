"""Find the words that a glossary term may replace, and build the requests that try it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from serving.bundle.manifest import Manifest
from serving.pipelines.translation.attention import attention_matrix
from serving.pipelines.translation.glossary import MatchedTerm, WantedTerms, capitalise, overlap
from serving.requests.parameters import GREEDY, MAX_WORDS, BeamParams, TokenIds
from serving.requests.request import FinishReason, GenerationRequest, Hypothesis, Ids
from serving.text.alignment import (
    Array,
    TokenizedText,
    find_words,
    overlap_shares,
    target_word_weights,
)
from serving.text.constraints.term_insertion import (
    TermInsertion,
    WordBorders,
)
from serving.text.spans import Span
from serving.text.terms import (
    HYPHENATED_WORD,
    term_pattern,
)
from serving.text.tokenizer import Tokenizer

_NUM_BEAMS = 4
MAX_FREE_TOKENS = 2  # with which the model may replace the word before a term
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("«", "»"), ("“", "”"))
MIN_ATTENTION = 0.01  # to a term, of the word that it replaces


@dataclass(frozen=True, slots=True)
class ReplaceableWords:
    """Words of a translation that a term may replace.

    free_starts: the starts of words from which on the model may change the text before the term.
    is_copied: whether they are the term itself, which the model has copied: what is around it was
        written for it, and stays.
    """

    span: Span
    free_starts: tuple[int, ...] = ()
    is_copied: bool = False


class SourceWords:
    """The words of a source. What is computed of a term is kept for all drafts of the translation:
    where one word is repeated, there are as many drafts as terms.
    """

    def __init__(self, source: TokenizedText) -> None:
        self.source = source
        self._spans: dict[Span, Span] = {}
        self._shares: dict[Span, tuple[Array, Array]] = {}

    def words_of_term(self, term: MatchedTerm) -> Span:
        """Return where the words of a term lie: signs around them are mostly copied, and attention
        to them says nothing of the words.
        """
        if term.span not in self._spans:
            words = [word for word in self._words if overlap(word, term.span)]
            self._spans[term.span] = Span(words[0].start, words[-1].end) if words else term.span
        return self._spans[term.span]

    def shares(self, term: MatchedTerm) -> tuple[Array, Array]:
        """Return the shares of tokens in the words of a term, and in each other word, as
        `overlap_shares` does: [1, tokens] and [other words, tokens].
        """
        if term.span not in self._shares:
            others = [word for word in self._words if not overlap(word, term.span)]
            self._shares[term.span] = (
                overlap_shares([self.words_of_term(term)], self.source.spans),
                overlap_shares(others, self.source.spans),
            )
        return self._shares[term.span]

    @cached_property
    def _words(self) -> list[Span]:
        return find_words(self.source.text, HYPHENATED_WORD)


class AlignedTranslation:
    """A translation with its words' attention to the source.

    request: by which it was translated. Its forced tokens are never replaced, nor is the next word
        if the request is constrained.
    """

    def __init__(
        self,
        hypothesis: Hypothesis,
        source_words: SourceWords,
        tokenizer: Tokenizer,
        request: GenerationRequest,
    ) -> None:
        self.hypothesis = hypothesis
        self.target = TokenizedText.from_pieces(tokenizer.pieces(hypothesis.tokens.ids))
        self._source_words, self._source = source_words, source_words.source
        self._fixed_end = self._end_of_fixed(request)

    @property
    def text(self) -> str:
        return self.target.text

    @cached_property
    def words(self) -> list[Span]:
        return find_words(self.text, HYPHENATED_WORD)

    def next_places(
        self, terms: WantedTerms, given_up: Sequence[MatchedTerm]
    ) -> tuple[MatchedTerm, list[ReplaceableWords]] | None:
        """Return the missing term that belongs leftmost, with the places for it; None if no term
        is missing.
        """
        written = terms.find_in(self.text)
        written_spans = [span for span, _ in written]
        is_free = [self._is_free(word, written_spans) for word in self.words]
        leftmost: tuple[MatchedTerm, list[ReplaceableWords]] | None = None
        for term in terms.missing(self.text):
            same_term = [
                span for span, translations in written if translations == term.translations
            ]
            if term in given_up or self._attends(same_term, term):
                continue
            places = self._places(term, written_spans, is_free)
            if places and (leftmost is None or places[0].span.start < leftmost[1][0].span.start):
                leftmost = term, places
        return leftmost

    def _attends(self, spans: Sequence[Span], term: MatchedTerm) -> bool:
        """Return whether the word that attends to the term most is in one of these spans."""
        if self._attention is None or not self.words:
            return False
        best = self.words[self._attention_to_term(term).argmax()]
        return any(overlap(best, span) for span in spans)

    def _places(
        self, term: MatchedTerm, written_spans: Sequence[Span], is_free: Sequence[bool]
    ) -> list[ReplaceableWords]:
        """Return the places for a term: where it was copied; else the word that attends to it most,
        alone and together with neighbours that attend mostly to the term. For a model without
        attention, every word.

        is_free: of each word, whether it may be replaced.
        """
        if copy := self._find_copy(term, written_spans):
            return [ReplaceableWords(copy, is_copied=True)]
        free = [number for number, can_change in enumerate(is_free) if can_change]
        if self._attention is None or not free:
            return [self._place(number, number, is_free) for number in free]
        weights = self._attention_to_term(term)
        if self.words[weights.argmax()].start < self._fixed_end:
            return []
        best = max(free, key=lambda number: weights[number])
        attends_mostly = (weights > 0) & (weights >= self._most_attention_to_others(term))
        belongs = [*map(bool, attends_mostly & np.array(is_free))]
        may_come_later = self.hypothesis.reason is FinishReason.LENGTH and not belongs[best]
        if weights[best] < MIN_ATTENTION or may_come_later:
            return []
        first, last = _grow_run(best, belongs, is_free)
        ranges = dict.fromkeys([(best, best), *((start, last) for start in range(first, best + 1))])
        places = [self._with_signs(self._place(start, end, is_free), term) for start, end in ranges]
        # A place that lacks a sign of the term would leave it there.
        num_signs = [self._num_signs(place, term) for place in places]
        pairs = zip(places, num_signs, strict=True)
        return [place for place, count in pairs if count == max(num_signs)]

    def _find_copy(self, term: MatchedTerm, written_spans: Sequence[Span]) -> Span | None:
        """Return where a term with signs at its ends stands as it is written in the source."""
        if not any(self._signs_of_term(term)):
            return None
        matches = _copy_pattern(self._source.text[slice(*term.span)]).finditer(self.text)
        spans = (Span(*match.span()) for match in matches)
        return next((span for span in spans if self._is_free(span, written_spans)), None)

    def _end_of_fixed(self, request: GenerationRequest) -> int:
        """Return how many characters at the beginning must not change."""
        forced = self.target.spans[: len(request.forced_ids)]
        end = forced[-1].end if forced else 0
        if request.constraint is None:
            return end
        return next((word.end for word in self.words if word.end > end), end)

    def _is_free(self, word: Span, written_spans: Sequence[Span]) -> bool:
        return word.start >= self._fixed_end and not any(
            overlap(word, span) for span in written_spans
        )

    def _place(self, first: int, last: int, is_free: Sequence[bool]) -> ReplaceableWords:
        span = Span(self.words[first].start, self.words[last].end)
        previous = [self.words[first - 1].start] if first > 0 and is_free[first - 1] else []
        return ReplaceableWords(span, (*previous, span.start) if last > first else tuple(previous))

    def _signs_of_term(self, term: MatchedTerm) -> tuple[str, str]:
        """Return the signs before the first word of a term, and those after its last one."""
        words = self._source_words.words_of_term(term)
        before = self._source.text[term.span.start : words.start]
        return before.strip(), self._source.text[words.end : term.span.end].strip()

    def _num_signs(self, place: ReplaceableWords, term: MatchedTerm) -> int:
        """Return at how many ends of a term its signs are in a place."""
        text = self.text[slice(*place.span)]
        return sum(signs in text for signs in self._signs_of_term(term) if signs)

    def _with_signs(self, place: ReplaceableWords, term: MatchedTerm) -> ReplaceableWords:
        """Return a place with the signs that begin and end the term, if they are beside it: they
        are a part of what the term replaces. So is the other one of a pair of brackets.
        """
        before, after = self._signs_of_term(term)
        span = self._extend_by(place.span, before, after)
        for opening, closing in _BRACKETS:
            num_open = self.text.count(opening, *span) - self.text.count(closing, *span)
            pair = opening if num_open < 0 else "", closing if num_open > 0 else ""
            span = self._extend_by(span, *pair)
        return ReplaceableWords(
            span, tuple(start for start in place.free_starts if start < span.start)
        )

    def _extend_by(self, span: Span, before: str, after: str) -> Span:
        """Return a span with these signs, where they are beside it."""
        start, end = span
        if before and self.text[self._fixed_end : start].rstrip().endswith(before):
            start = self.text.rindex(before, self._fixed_end, start)
        if after and self.text[end:].lstrip().startswith(after):
            end = self.text.index(after, end) + len(after)
        return Span(start, end)

    def with_own_attention(
        self, wanted_terms: WantedTerms, terms: Sequence[MatchedTerm]
    ) -> Hypothesis:
        """Return the hypothesis in which the tokens of these terms attend only to their sources."""
        if self._attention is None:
            return self.hypothesis
        tokens = self.hypothesis.tokens
        alignments = [*tokens.alignments]
        remaining = list(terms)
        for span, translations in wanted_terms.find_in(self.text):
            candidates = [term for term in remaining if term.translations == translations]
            if not candidates:
                continue
            numbers = [n for n, token in enumerate(self.target.spans) if overlap(token, span)]
            shares = overlap_shares([term.span for term in candidates], self._source.spans)
            best = int((shares @ self._attention[numbers].sum(axis=0)).argmax())
            remaining.remove(candidates[best])
            attention = (shares[best] / max(shares[best].sum(), 1e-9)).astype(np.float32)
            for number in numbers:
                alignments[number] = attention
        return replace(self.hypothesis, tokens=replace(tokens, alignments=alignments))

    def _attention_to_term(self, term: MatchedTerm) -> Array:
        """Return how much each word attends to the words of a term: [words]."""
        of_term, _ = self._source_words.shares(term)
        return self._attention_by_shares(of_term)[:, 0]

    def _most_attention_to_others(self, term: MatchedTerm) -> Array:
        """Return how much each word attends to that other source word that it attends to most:
        [words].
        """
        _, of_others = self._source_words.shares(term)
        most: Array = self._attention_by_shares(of_others).max(axis=1, initial=0.0)
        return most

    def _attention_by_shares(self, shares: Array) -> Array:
        """Return how much each word attends to spans of the source: [words, spans]. The same as
        `word_attention`.

        shares: of tokens in spans, [spans, source tokens].
        """
        matrix: Array = self._word_weights @ (self._precise_attention @ shares.T)
        return matrix

    @cached_property
    def _word_weights(self) -> Array:
        return target_word_weights(self.target, self.words)

    @cached_property
    def _precise_attention(self) -> Array:
        assert self._attention is not None
        return self._attention.astype(np.float64)

    @cached_property
    def _attention(self) -> Array | None:
        return attention_matrix(self.hypothesis.tokens, len(self._source.spans))


@dataclass(frozen=True, slots=True)
class Replacement:
    """Words of a translation and the text of the term that replaces them."""

    draft: AlignedTranslation
    place: ReplaceableWords
    text: str

    @property
    def result(self) -> str:
        """Return the translation with only these words replaced."""
        span = self.place.span
        return self.draft.text[: span.start] + self.text + self.draft.text[span.end :]

    @property
    def replaced_text(self) -> str:
        return self.draft.text[self.place.span.start : self.place.span.end]

    @property
    def replaced_parts(self) -> tuple[str, str]:
        """Return the signs before the first word that is replaced, and the rest."""
        first = HYPHENATED_WORD.search(self.replaced_text)
        start = first.start() if first else 0
        return self.replaced_text[:start].rstrip(), self.replaced_text[start:]


class CandidateRequests:
    """Builds requests from the one by which a segment was translated without its terms."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, max_rows: int) -> None:
        """max_rows: of the engine."""
        self._tokens, self._tokenizer = manifest.tokens, tokenizer
        self._num_beams = min(_NUM_BEAMS, max_rows)
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
        prefix = self._ids_before(replacement.draft, start)
        ids = (*prefix, *self._ids_of_term(replacement, prefix), *self._ids_after(replacement))
        return replace(
            request,
            forced_ids=ids[: len(request.forced_ids) + self._max_new_tokens(request)],
            constraint=None,
            max_new_tokens=0,
            beam=None,
            sampling=GREEDY,
            returns_logprobs=True,
        )

    def others(
        self, request: GenerationRequest, replacement: Replacement
    ) -> Iterator[GenerationRequest]:
        """Yield requests in which the model may also change the words before the term, or all words
        after it. If tokens were sampled, those after the term stay. None where the model has copied
        the term.
        """
        if replacement.place.is_copied:
            return
        place, draft = replacement.place, replacement.draft
        starts = [(place.span.start, 0)]
        starts += [
            (start, num + 1) for start in place.free_starts for num in range(MAX_FREE_TOKENS)
        ]
        rests: list[TokenIds] = [self._ids_after(replacement)]
        if request.sampling.temperature == 0:
            rests.append(())
        for start, num_free in starts:
            prefix = self._ids_before(draft, start)
            num_new = self._max_new_tokens(request) + len(request.forced_ids) - len(prefix)
            for rest in rests:
                if num_new > 0 and (num_free or not rest):
                    insertion = self._insertion(replacement, prefix, num_free, rest)
                    yield self._search(request, replacement, prefix, num_new, insertion)

    def _insertion(
        self, replacement: Replacement, prefix: TokenIds, num_free: int, rest: TokenIds
    ) -> TermInsertion:
        spaced, bare = self._spellings(replacement.text)
        if not num_free:
            spaced = self._ids_of_term(replacement, prefix)
        beginnings = [ids[0] for ids in self._spellings(replacement.replaced_text)]
        unwanted_ids = np.array([*self._tokens.stop, *beginnings], np.int64)
        opening_ids = self._borders.opening_ids
        return TermInsertion(
            num_free, spaced, bare, rest, opening_ids, self._inner_ids, unwanted_ids
        )

    def _search(
        self,
        request: GenerationRequest,
        replacement: Replacement,
        prefix: TokenIds,
        num_new: int,
        insertion: TermInsertion,
    ) -> GenerationRequest:
        processors = request.processors
        bad_words = (*processors.bad_words, *self._unwanted_words(replacement))
        min_tokens = processors.min_tokens + len(request.forced_ids) - len(prefix)
        beam, num_beams = request.beam or BeamParams(_NUM_BEAMS), self._num_beams
        return replace(
            request,
            forced_ids=prefix,
            constraint=insertion,
            max_new_tokens=num_new,
            beam=replace(beam, num_beams=num_beams, num_hypotheses=num_beams),
            sampling=GREEDY,
            processors=replace(
                processors, bad_words=bad_words[:MAX_WORDS], min_tokens=max(min_tokens, 0)
            ),
            returns_logprobs=True,
            streams=False,
        )

    def _unwanted_words(self, replacement: Replacement) -> list[TokenIds]:
        """Return the replaced words and the signs before them, so that the model does not write
        them after the term; not what is a part of the term or occurs elsewhere in the translation.
        """
        signs, words = replacement.replaced_parts
        unwanted = []
        if not term_pattern(words).search(replacement.result):
            unwanted += self._spellings(words)
        if signs and signs not in replacement.result:
            unwanted += self._spellings(signs)
        return unwanted

    def _spellings(self, text: str) -> list[TokenIds]:
        """Return the tokens of a text within another one, with a space before it and without."""
        return [tuple(self._tokenizer.encode_inside(space + text)) for space in (" ", "")]

    def _max_new_tokens(self, request: GenerationRequest) -> int:
        """Return how many tokens may come after the request's forced ones."""
        num_prompt = len(self._tokens.prompt_prefix) + len(request.prompt_ids)
        room = self._max_target_tokens - num_prompt - len(request.forced_ids)
        return room if request.max_new_tokens is None else min(request.max_new_tokens, room)

    def _ids_of_term(self, replacement: Replacement, prefix: TokenIds) -> TokenIds:
        """Return the tokens of the term after a prefix, capitalised if it begins the sentence."""
        before = replacement.draft.text[: replacement.place.span.start]
        text = replacement.text
        if not HYPHENATED_WORD.search(before) and replacement.replaced_text[:1].isupper():
            text = capitalise(text)
        if not prefix:
            return tuple(self._tokenizer.encode(text))
        space = "" if prefix[-1] in self._borders.opening_ids else " "
        return tuple(self._tokenizer.encode_inside(space + text))

    def _ids_before(self, draft: AlignedTranslation, end: int) -> TokenIds:
        """Return the tokens of the text up to a character, without the space before it."""
        spans = draft.target.spans
        number = next((n for n, span in enumerate(spans) if span.end > end), len(spans))
        cut = draft.text[spans[number].start : end].rstrip() if number < len(spans) else ""
        return (*draft.hypothesis.tokens.ids[:number], *self._tokens_of(cut, number == 0))

    def _ids_after(self, replacement: Replacement) -> TokenIds:
        """Return the tokens after the replaced words, with the end token if there was one."""
        draft, start = replacement.draft, replacement.place.span.end
        spans = draft.target.spans
        number = next((n for n, span in enumerate(spans) if span.start >= start), len(spans))
        until = spans[number].start if number < len(spans) else len(draft.text)
        ids = (
            *self._tokens_of(draft.text[start:until].rstrip()),
            *draft.hypothesis.tokens.ids[number:],
        )
        has_ended = draft.hypothesis.reason is FinishReason.STOP
        return (*ids, self._tokens.eos) if has_ended else ids

    def _tokens_of(self, text: str, begins_text: bool = False) -> Sequence[int]:
        if not text.strip():
            return ()
        return self._tokenizer.encode(text) if begins_text else self._tokenizer.encode_inside(text)


def _copy_pattern(term: str) -> re.Pattern[str]:
    """Match a term with signs at its ends as it is written, whatever stands beside a sign."""
    before, after = (r"(?<!\w)" * term[0].isalnum(), r"(?!\w)" * term[-1].isalnum())
    return re.compile(before + re.escape(term) + after, re.IGNORECASE)


def _grow_run(best: int, belongs: Sequence[bool], is_free: Sequence[bool]) -> tuple[int, int]:
    """Return the first and last word of the run of words that belong to a term. One word between
    two of them may attend to something else, as in "pomme de terre".
    """
    first = last = best
    for step in (-1, 1):
        end = best
        while any(_is_true_at(belongs, end + step * width) for width in (1, 2)):
            is_next = _is_true_at(belongs, end + step)
            if not is_next and not is_free[end + step]:
                break
            end += step if is_next else 2 * step
        first, last = min(first, end), max(last, end)
    return first, last


def _is_true_at(values: Sequence[bool], number: int) -> bool:
    return 0 <= number < len(values) and values[number]
