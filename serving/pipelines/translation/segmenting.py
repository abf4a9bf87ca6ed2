"""Cut the texts of a translation job into segments that fit the model."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from serving.bundle.manifest import SPLIT_TOKENS, Limits, Tokens
from serving.errors import RequestError, TooLarge
from serving.pipelines.translation.glossary import NOT_WRITABLE, TermMatcher
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.prompting import TranslationPrompts
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.request import Constraint
from serving.text.constraints.prefix import PrefixConstraints
from serving.text.formatting import is_unfinished_sentence
from serving.text.languages import primary_language
from serving.text.markup.known_words import KnownWords
from serving.text.markup.protection import Protection
from serving.text.markup.segmenter import MarkupSegmenter
from serving.text.markup.segments import MarkedSegment
from serving.text.sentences import TextLayout, split_text
from serving.text.wrapped_lines import has_wrapped_lines

# A translation may need this many times the tokens of its source, and must still fit the target.
_MAX_TARGET_GROWTH = 1.5
_LAST_WORD = re.compile(r"\s?(?<!\S)\S+$")  # tried once a word, not once a character


class TextSegmenter:
    """Splits texts into segments that fit the model, and finds glossary terms and protected text in
    them.

    max_segments: of one job; None for any number.
    known_words: words of the source language that the model knows, if there is a list.
    prompts: of a language model.
    """

    def __init__(
        self,
        limits: Limits,
        tokens: Tokens,
        tokenizers: TokenizerPair,
        max_segments: int | None = None,
        known_words: KnownWords | None = None,
        prompts: TranslationPrompts | None = None,
    ) -> None:
        self._limits = limits
        self._prompts = prompts
        self._tokens = tokens
        self._tokenizers = tokenizers
        self._source, self._target = tokenizers.source, tokenizers.target
        self._is_lossless = tokenizers.source.is_lossless
        self._beginnings = PrefixConstraints(tokenizers.target)
        self._max_segments = max_segments
        self._known_words = known_words
        self._special_tokens: dict[tuple[str, str], LanguagePairTokens] = {}

    def plan(self, job: TranslationJob) -> TranslationPlan:
        """Return the plan of a job whose languages are the model's own codes.

        Raises TooLarge for too many segments, RequestError for a prefix or glossary term that the
        target's vocabulary cannot write.
        """
        special_tokens = self.special_tokens(job.source, job.target)
        matcher = TermMatcher(job.glossary, self._target) if job.glossary else None
        layouts, marks = self._cut_texts(job, special_tokens, matcher)
        texts = [text for layout in layouts for text in layout.segments]
        self.check_number(texts, "sentences")
        source_ids = self._tokenizers.encode_sources(texts, special_tokens)
        segments: list[Segment] = []
        for layout in layouts:
            is_rest = False
            for place, text in enumerate(layout.segments):
                number, gap = len(segments), layout.gaps[place + 1]
                is_last = place == len(layout.segments) - 1
                is_cut = not is_last and is_unfinished_sentence(text, gap)
                terms = matcher.match(text) if matcher else ()
                segment = Segment(
                    *(text, source_ids[number], place, terms),
                    marks=marks[number],
                    is_cut=is_cut,
                    is_rest=is_rest,
                )
                segments.append(segment)
                is_rest = is_cut
        plan = TranslationPlan(special_tokens, layouts, tuple(segments))
        if not job.target_prefix:
            return plan
        return plan.with_changes(dict.fromkeys(plan.first_segments, self._prefix_fields(job)))

    def special_tokens(self, source: str, target: str) -> LanguagePairTokens:
        """Return the special tokens of a pair of languages by the model's codes. For a language
        model the first time of a pair takes longer.
        """
        pair = source, target
        if pair not in self._special_tokens:
            if self._prompts is None:
                special_tokens = LanguagePairTokens.for_languages(self._tokens, source, target)
            else:
                special_tokens = self._prompts.special_tokens(source, target)
            self._special_tokens[pair] = special_tokens
        return self._special_tokens[pair]

    def check_number(self, parts: Sequence[object], name: str) -> None:
        if self._max_segments is not None and len(parts) > self._max_segments:
            message = f"at most {self._max_segments} {name} a request, this has {len(parts)}"
            raise TooLarge("text", parts[0], message)

    def _cut_texts(
        self, job: TranslationJob, special_tokens: LanguagePairTokens, matcher: TermMatcher | None
    ) -> tuple[tuple[TextLayout, ...], list[MarkedSegment | None]]:
        """Return the layout of each text, and the marks of each segment; None for segments that
        have none.
        """
        fits = partial(self._fits, self._max_segment_tokens(special_tokens))
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
            matcher.spans if matcher else None,
        )
        segmenter = MarkupSegmenter(job.markup, protection, job.splitting, fits, self._num_tokens)
        needs_marks = job.needs_attention
        layouts: list[TextLayout] = []
        marks: list[MarkedSegment | None] = []
        for text in job.texts:
            layout = None if needs_marks else segmenter.segment_plain_text(text)
            if layout is not None:
                marks += [None] * len(layout.segments)
            else:
                marked = segmenter.segment(text)
                marks += marked.segments
                layout = marked.plain
            layouts.append(layout)
        return tuple(layouts), marks

    def _prefix_fields(self, job: TranslationJob) -> dict[str, Any]:
        """Return the fields of a text's first segment that the target prefix decides."""
        words, incomplete_word = _split_prefix(job)
        if not (self._target.can_write(words) or job.replaces_unknown):
            raise RequestError("target_prefix", job.target_prefix, NOT_WRITABLE)
        fields: dict[str, Any] = {"prefixes": (tuple(self._target.encode(words)),)}
        if incomplete_word:
            beginning = self._beginning(job.target_prefix, incomplete_word, not words)
            fields["beginning"] = beginning
        return fields

    def _beginning(self, prefix: str, incomplete_word: str, begins_text: bool) -> Constraint:
        """Return a constraint: the next word continues the incomplete word at the end of the
        prefix. If the vocabulary cannot write the incomplete word, the next token must begin with
        it.
        """
        if self._target.can_write(incomplete_word):
            incomplete_word = self._normalise(incomplete_word)
        elif not self._beginnings.has_token(incomplete_word, begins_text):
            raise RequestError("target_prefix", prefix, NOT_WRITABLE)
        return self._beginnings.constraint(incomplete_word, begins_text)

    def _normalise(self, word: str) -> str:
        """Return the word as the target's tokenizer normalises it."""
        if self._target.is_lossless:
            return word
        space = " " if word[0].isspace() else ""
        return space + self._target.decode(self._target.encode(word.lstrip()))

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

    def _num_tokens(self, text: str) -> int:
        return len(self._source.encode(text))

    def _max_segment_tokens(self, special_tokens: LanguagePairTokens) -> int:
        # The prompt of a language model needs room for the source, too.
        growth = _MAX_TARGET_GROWTH + special_tokens.is_prompt
        longest = int((self._limits.max_target_tokens - special_tokens.num_target) / growth)
        if self._limits.max_source_tokens is not None:
            longest = min(longest, self._limits.max_source_tokens - special_tokens.num_source)
        if not special_tokens.is_prompt:
            longest = min(longest, self._limits.split_tokens or SPLIT_TOKENS)
        return max(1, longest)


def _split_prefix(job: TranslationJob) -> tuple[str, str]:
    """Cut a prefix in two: whole words, and the last one, with the space before it, if it may have
    been typed half: if no space follows, and nobody asks what could come right after it.
    """
    prefix = job.target_prefix.lstrip()
    last = _LAST_WORD.search(prefix)
    if last is None or job.alternatives_at_prefix:
        return prefix.rstrip(), ""
    return prefix[: last.start()], last.group()
