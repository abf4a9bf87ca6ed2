"""Turn the engine's events into translations of segments, and join these into whole texts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from serving.bundle.manifest import Manifest
from serving.pipelines.translation.alternatives import drop_same_wording, select_likely
from serving.pipelines.translation.attention import (
    attention_matrix,
    sentence_attention,
    sentence_maps,
)
from serving.pipelines.translation.job import (
    AlignedWords,
    Rendering,
    SegmentOrigin,
    SentenceAttention,
    TranslationJob,
)
from serving.pipelines.translation.memory import memory_text
from serving.pipelines.translation.plan import Segment
from serving.pipelines.translation.quality import Calibration, SegmentQuality, segment_quality
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens, TokenizerPair
from serving.requests.request import FinishedEvent, FinishReason, Hypothesis
from serving.text.alignment import Array, Link, TokenizedText, link_words, word_attention
from serving.text.formatting import (
    format_sentence_rest,
    format_sentence_start,
    match_end_marks,
)
from serving.text.languages import primary_language
from serving.text.markup.marked_translation import MarkedTranslation
from serving.text.replacement import (
    replace_placeholders,
    replace_unknown,
)
from serving.text.sentences import TextLayout

_BY_SEVERITY = (FinishReason.CONSTRAINT, FinishReason.LENGTH, FinishReason.STOP)


class SegmentRenderer:
    """Converts the hypotheses of a job's segments into text.

    A plain segment is decoded, and gets the end mark of its source. Only where the job asks for
    what single tokens say, or marks stand among the words, are its tokens looked at one by one.
    """

    def __init__(
        self,
        job: TranslationJob,
        special_tokens: LanguagePairTokens,
        tokenizers: TokenizerPair,
        manifest: Manifest,
        calibration: Calibration,
    ) -> None:
        self._job = job
        self._special_tokens, self._tokenizers = special_tokens, tokenizers
        self._manifest, self._calibration = manifest, calibration
        self._needs_attention = job.needs_attention
        self._needs_tokens = self._needs_attention or job.returns_quality

    def render_all(
        self, segments: Sequence[Segment], ends: Sequence[FinishedEvent]
    ) -> list[list[Rendering]]:
        """Return the translations of each segment, best first.

        ends: of the segments' requests, in order.
        """
        remaining = iter(ends)
        return [
            self._render_ranked(segment, [*islice(remaining, len(segment.prefixes))])
            for segment in segments
        ]

    def _render_ranked(self, segment: Segment, ends: Sequence[FinishedEvent]) -> list[Rendering]:
        if segment.fixed_translation is not None:
            renderings = [Rendering(segment.fixed_translation)]
        elif len(ends) == 1:
            renderings = self._render_hypotheses(segment, ends[0])
        else:
            ranked = (self._render_hypotheses(segment, end) for end in select_likely(ends))
            renderings = drop_same_wording(chain.from_iterable(ranked))
        if self._job.memory is None:
            return renderings
        return [
            replace(rendering, origins=(self._origin(segment, rendering.text),))
            for rendering in renderings
        ]

    def _origin(self, segment: Segment, text: str) -> SegmentOrigin:
        marks = segment.marks
        source = memory_text(marks.tokens, self._job.markup) if marks else segment.text
        return SegmentOrigin(source, text, segment.memory_score)

    def _render_hypotheses(self, segment: Segment, end: FinishedEvent) -> list[Rendering]:
        renderings = [self.render(segment, hypothesis) for hypothesis in end.hypotheses]
        if self._job.attention_queries:
            maps = sentence_maps(
                self._tokenizers,
                self._special_tokens,
                self._manifest.attention_shapes,
                self._job.attention_queries,
                segment.source_ids,
                end.best.tokens,
                end,
            )
            renderings[0] = replace(renderings[0], attention_maps=(maps,))
        return renderings

    def render(self, segment: Segment, hypothesis: Hypothesis) -> Rendering:
        """Return the translation of a segment by one hypothesis."""
        if segment.fixed_translation is not None:
            return Rendering(segment.fixed_translation)
        if self._needs_tokens or segment.has_inner_marks:
            rendering = self._render_tokens(segment, hypothesis)
        else:
            text = self._tokenizers.target.decode(hypothesis.tokens.ids).strip()
            text = self._match_end_mark(segment, text)
            if segment.marks is not None:
                text = text.translate(segment.marks.references)
            rendering = Rendering(text, hypothesis.score, hypothesis.reason)
        # Where words are shown with their attention they stay as the model wrote them.
        if (segment.is_cut or segment.is_rest) and not self._needs_attention:
            return replace(rendering, text=self._as_part_of_sentence(segment, rendering.text))
        return rendering

    def _match_end_mark(self, segment: Segment, text: str) -> str:
        """Return a translation that ends with a mark if its segment does, and with none else."""
        if not self._job.protection or self._job.target_prefix or not text:
            return text
        text = match_end_marks(segment.text, text)
        if segment.text.endswith((":", ";")):
            return format_sentence_start(segment.text, text, primary_language(self._job.target))
        return text

    def _as_part_of_sentence(self, segment: Segment, text: str) -> str:
        """Return the translation of a part of a sentence as it stands within it."""
        if segment.marks and segment.marks.is_in_capitals:
            return text
        language = primary_language(self._job.target)
        if segment.is_cut:
            text = format_sentence_start(segment.text, text, language)
        if segment.is_rest:
            text = format_sentence_rest(segment.text, text, language)
        return text

    def _render_tokens(self, segment: Segment, hypothesis: Hypothesis) -> Rendering:
        """Return the translation of a segment from its single tokens and their attention."""
        target, source, attention = self._align(segment, hypothesis)
        marked = None
        if segment.has_inner_marks:
            assert segment.marks is not None
            marked = MarkedTranslation(segment.marks, target, source, attention)
            text = marked.text()
        elif segment.marks is not None:
            text = self._match_end_mark(segment, target.text.strip())
            text = text.translate(segment.marks.references)
        else:
            text = target.text
            pattern = self._job.placeholder_pattern
            if pattern is not None and attention is not None:
                text = replace_placeholders(target, source, attention, pattern)
        quality: tuple[SegmentQuality, ...] = ()
        if self._job.returns_quality:
            written = marked.tokenized_text() if marked else target
            shares = marked.token_shares() if marked else np.eye(len(hypothesis.tokens))
            logprobs = hypothesis.tokens.logprobs
            quality = (segment_quality(self._calibration, logprobs, written, shares),)
        if attention is None:
            text = text if marked else text.strip()
            return Rendering(text, hypothesis.score, hypothesis.reason, quality=quality)
        words = marked.word_alignment() if marked else (target, source, attention)
        return Rendering(
            text.strip(" "),  # line breaks count
            hypothesis.score,
            hypothesis.reason,
            _align_words(*words) if self._job.returns_alignments else None,
            self._sentence_attention(segment, hypothesis, attention),
            quality=quality,
        )

    def find_marks(self, segment: Segment, hypothesis: Hypothesis) -> MarkedTranslation | None:
        """Return the translation of a segment with tags or protected text among its words; None
        for others.
        """
        if not segment.has_inner_marks:
            return None
        assert segment.marks is not None
        return MarkedTranslation(segment.marks, *self._align(segment, hypothesis))

    def _align(
        self, segment: Segment, hypothesis: Hypothesis
    ) -> tuple[TokenizedText, TokenizedText, Array | None]:
        """Return the target, the source and the attention between their tokens."""
        ids, source_ids = hypothesis.tokens.ids, segment.source_ids
        source = TokenizedText.from_pieces(
            self._tokenizers.source_pieces(source_ids, self._special_tokens)
        )
        attention = attention_matrix(hypothesis.tokens, len(source_ids))
        pieces = self._tokenizers.target.pieces(ids)
        unknown_id = self._manifest.tokens.unk
        if self._job.replaces_unknown and unknown_id is not None and attention is not None:
            is_unknown = [token_id == unknown_id for token_id in ids]
            pieces = replace_unknown(pieces, is_unknown, attention, source)
        return TokenizedText.from_pieces(pieces), source, attention

    def _sentence_attention(
        self, segment: Segment, hypothesis: Hypothesis, attention: Array
    ) -> tuple[SentenceAttention, ...]:
        if not self._job.returns_attention:
            return ()
        return (
            sentence_attention(
                self._tokenizers,
                self._special_tokens,
                segment.source_ids,
                hypothesis.tokens.ids,
                attention,
            ),
        )


def _align_words(target: TokenizedText, source: TokenizedText, attention: Array) -> AlignedWords:
    """Align words separated by white space.

    attention: [tokens or words of the target, of the source]
    """
    links = link_words(word_attention(attention, target, source))
    return AlignedWords(tuple(source.text.split()), tuple(target.text.split()), tuple(links))


def join_segments(
    layouts: Sequence[TextLayout], segments: Sequence[Sequence[Rendering]], count: int
) -> list[tuple[Rendering, ...]]:
    """Return the different translations of each text, best first: of the best translations of all
    its segments, of the second best, and so on. A segment with fewer translations repeats its last
    one.

    segments: the translations of the segments of all texts.
    count: maximum number of translations of a text.
    """
    remaining = iter(segments)
    texts: list[tuple[Rendering, ...]] = []
    for layout in layouts:
        ranked = [*islice(remaining, len(layout.segments))]
        distinct: dict[str, Rendering] = {}
        for rank in range(max(map(len, ranked), default=1)):
            parts = [renderings[min(rank, len(renderings) - 1)] for renderings in ranked]
            whole = _join_renderings(layout, parts)
            distinct.setdefault(whole.text, whole)
        texts.append(tuple(islice(distinct.values(), count)))
    return texts


def _join_renderings(layout: TextLayout, parts: Sequence[Rendering]) -> Rendering:
    text = layout.fill([part.text for part in parts])
    if not parts:
        return Rendering(text)
    alignments = [part.alignment for part in parts if part.alignment is not None]
    return Rendering(
        text,
        sum([part.score for part in parts]) / len(parts),
        min([part.reason for part in parts], key=_BY_SEVERITY.index),
        _join_alignments(alignments) if alignments else None,
        tuple([sentence for part in parts for sentence in part.attention]),
        tuple([sentence for part in parts for sentence in part.attention_maps]),
        tuple([segment for part in parts for segment in part.quality]),
        tuple([origin for part in parts for origin in part.origins]),
    )


def _join_alignments(parts: Sequence[AlignedWords]) -> AlignedWords:
    """Concatenate alignments; the word indices of each continue after those before."""
    return AlignedWords(
        tuple(word for part in parts for word in part.source_words),
        tuple(word for part in parts for word in part.target_words),
        tuple(_shift_links(parts)),
    )


def _shift_links(parts: Sequence[AlignedWords]) -> Iterator[Link]:
    num_source = num_target = 0
    for part in parts:
        for source, target in part.links:
            yield Link(num_source + source, num_target + target)
        num_source += len(part.source_words)
        num_target += len(part.target_words)
