"""Cut the texts of a translation job into segments that fit the model."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from serving.bundle.manifest import SPLIT_TOKENS, Limits, Tokens
from serving.errors import RequestError, TooLarge
from serving.pipelines.translation.glossary import NOT_WRITABLE, TermMatcher
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.prompting import TranslationPrompts
from serving.pipelines.translation.requests import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import SpecialTokens, TokenizerPair
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

    def plan(self, job: TranslationJob) -> TranslationPlan:
        """Return the plan of a job whose languages are the model's own codes.

        Raises TooLarge for too many segments, RequestError for a prefix or glossary term that the
        target's vocabulary cannot write.
        """
        frame = self.frame(job.source, job.target)
        glossary = TermMatcher(job.glossary, self._target)
        layouts, marks = self._layouts(job, frame, glossary)
        self.check_number([text for layout in layouts for text in layout.segments], "sentences")
        segments = self._segments(frame, layouts, marks, glossary)
        plan = TranslationPlan(frame, layouts, segments)
        if not job.target_prefix:
            return plan
        return plan.with_changes(dict.fromkeys(plan.first_segments, self._prefix(job)))

    def frame(self, source: str, target: str) -> SpecialTokens:
        """Return the special tokens of a pair of languages, given by the model's codes."""
        if self._prompts is not None:
            return self._prompts.between(source, target)
        return SpecialTokens.between(self._tokens, source, target)

    def check_number(self, parts: Sequence[object], name: str) -> None:
        if self._max_segments is not None and len(parts) > self._max_segments:
            message = f"at most {self._max_segments} {name} a request, this has {len(parts)}"
            raise TooLarge("text", parts[0], message)

    def _layouts(
        self, job: TranslationJob, frame: SpecialTokens, glossary: TermMatcher
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
            glossary.spans if job.glossary else None,
        )
        reader = MarkupSegmenter(job.markup, protection, job.splitting, fits, self._num_tokens)
        layouts: list[TextLayout] = []
        marks: list[MarkedSegment | None] = []
        for text in job.texts:
            layout = None if job.needs_attention else reader.segment_plain_text(text)
            if layout is not None:
                marks += [None] * len(layout.segments)
            else:
                marked = reader.segment(text)
                marks += marked.segments
                layout = marked.plain
            layouts.append(layout)
        return tuple(layouts), marks

    def _segments(
        self,
        frame: SpecialTokens,
        layouts: Sequence[TextLayout],
        marks: Sequence[MarkedSegment | None],
        glossary: TermMatcher,
    ) -> tuple[Segment, ...]:
        texts = [text for layout in layouts for text in layout.segments]
        places = [place for layout in layouts for place in range(len(layout.segments))]
        sources = self._tokenizers.encode_sources(texts, frame)
        cuts = [is_cut for layout in layouts for is_cut in _cuts(layout)]
        return tuple(
            Segment(
                *(text, source_ids, place, glossary.found(text)),
                marks=own_marks,
                is_cut=is_cut,
                is_rest=place > 0 and was_cut,
            )
            for text, source_ids, place, own_marks, is_cut, was_cut in zip(
                texts, sources, places, marks, cuts, [False, *cuts], strict=False
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

    def _num_tokens(self, text: str) -> int:
        return len(self._source.encode(text))

    def _max_segment_tokens(self, frame: SpecialTokens) -> int:
        growth = _MAX_TARGET_GROWTH + frame.is_prompt  # a prompt needs room for the source, too
        longest = int((self._limits.max_target_tokens - frame.num_given) / growth)
        if self._limits.max_source_tokens is not None:
            longest = min(longest, self._limits.max_source_tokens - frame.num_around)
        if not frame.is_prompt:
            longest = min(longest, self._limits.split_tokens or SPLIT_TOKENS)
        return max(1, longest)


def _cuts(layout: TextLayout) -> list[bool]:
    """Return of each segment whether its sentence goes on after it."""
    if len(layout.segments) < 2:
        return [False] * len(layout.segments)
    inner = zip(layout.segments, layout.gaps[1:-1], strict=False)
    return [*(is_unfinished_sentence(segment, gap) for segment, gap in inner), False]


def _last_word_apart(job: TranslationJob) -> tuple[str, str]:
    """Cut a prefix in two: whole words, and the last one, with the space before it, if it may have
    been typed half: if no space follows, and nobody asks what could come right after it.
    """
    prefix = job.target_prefix.lstrip()
    last = _LAST_WORD.search(prefix)
    if last is None or job.alternatives_at_prefix:
        return prefix.rstrip(), ""
    return prefix[: last.start()], last.group()
