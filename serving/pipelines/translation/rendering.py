"""Turn the engine's events into translations of segments and of whole texts, and into scores of
given translations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from serving.pipelines.attention_maps import AttentionMap, Shapes, TokenTexts, attention_maps
from serving.pipelines.decoding import require_finished
from serving.pipelines.translation.alternatives import keep_differently_worded, likeliest_ends
from serving.pipelines.translation.job import (
    AlignedWords,
    PairScore,
    Rendering,
    SegmentOrigin,
    SentenceAttention,
    TranslationJob,
)
from serving.pipelines.translation.memory import memory_text
from serving.pipelines.translation.quality import Calibration, SegmentQuality, segment_quality
from serving.pipelines.translation.requests import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import SpecialTokens, TokenizerPair
from serving.requests.parameters import TokenIds
from serving.requests.request import (
    AttentionQuery,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    OutputTokens,
)
from serving.text.alignment import (
    DRAWN_WORD,
    Array,
    Link,
    TokenizedText,
    find_words,
    link_words,
    word_attention,
)
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
from serving.text.token_text import token_text

_BY_SEVERITY = (FinishReason.CONSTRAINT, FinishReason.LENGTH, FinishReason.STOP)


class SegmentRenderer:
    """Converts the hypotheses of a job's segments into text.

    unknown_id: the model's unknown token; None if the model can write any text.
    """

    def __init__(
        self,
        job: TranslationJob,
        plan: TranslationPlan,
        tokenizers: TokenizerPair,
        unknown_id: int | None,
        shapes: Shapes,
        calibration: Calibration,
    ) -> None:
        self._job, self._plan = job, plan
        self._frame, self._tokenizers = plan.frame, tokenizers
        self._unknown_id = unknown_id if job.replaces_unknown else None
        self._placeholders = job.placeholder_pattern
        self._shapes, self._calibration = shapes, calibration

    def renderings(self, ends: Sequence[FinishedEvent]) -> list[list[Rendering]]:
        """Return the translations of each segment of the plan, best first.

        ends: of the plan's requests.
        """
        waiting = iter(ends)
        return [
            self._of_segment(segment, [*islice(waiting, len(segment.prefixes))])
            for segment in self._plan.segments
        ]

    def _of_segment(self, segment: Segment, ends: Sequence[FinishedEvent]) -> list[Rendering]:
        found = self._ranked_translations(segment, ends)
        if self._job.memory is None:
            return found
        return [replace(each, origins=(self._origin(segment, each.text),)) for each in found]

    def _origin(self, segment: Segment, text: str) -> SegmentOrigin:
        marks = segment.marks
        source = memory_text(marks.tokens, self._job.markup) if marks else segment.text
        return SegmentOrigin(source, text, segment.memory_score)

    def _ranked_translations(
        self, segment: Segment, ends: Sequence[FinishedEvent]
    ) -> list[Rendering]:
        if segment.given is not None:
            return [Rendering(segment.given)]
        if len(ends) == 1:
            return [*self._ranked(segment, ends[0])]
        ranked = (self._ranked(segment, end) for end in likeliest_ends(ends))
        return keep_differently_worded(chain.from_iterable(ranked))

    def _ranked(self, segment: Segment, end: FinishedEvent) -> Iterator[Rendering]:
        best, *others = end.hypotheses
        rendering = self.rendering(segment, best)
        if queries := self._job.attention_queries:
            maps = sentence_maps(
                self._tokenizers,
                self._frame,
                self._shapes,
                queries,
                segment.source_ids,
                best.tokens,
                end,
            )
            rendering = replace(rendering, attention_maps=(maps,))
        yield rendering
        yield from (self.rendering(segment, other) for other in others)

    def rendering(self, segment: Segment, hypothesis: Hypothesis) -> Rendering:
        if segment.given is not None:
            return Rendering(segment.given)
        rendering = self._as_model_wrote(segment, hypothesis)
        text = self._as_part_of_sentence(segment, rendering.text)
        return rendering if text == rendering.text else replace(rendering, text=text)

    def _as_part_of_sentence(self, segment: Segment, text: str) -> str:
        """Return the translation of a part of a sentence as it stands within it. Where words are
        shown with their attention they stay as the model wrote them.
        """
        if self._job.needs_attention or (segment.marks and segment.marks.is_in_capitals):
            return text
        language = primary_language(self._job.target)
        if segment.is_cut:
            text = format_sentence_start(segment.text, text, language)
        if segment.is_rest:
            text = format_sentence_rest(segment.text, text, language)
        return text

    def _as_model_wrote(self, segment: Segment, hypothesis: Hypothesis) -> Rendering:
        ids = hypothesis.tokens.ids
        marks = segment.marks
        needs_pieces = self._job.needs_attention or self._job.returns_quality
        if not needs_pieces and (marks is None or marks.is_plain_text):
            text = self._tokenizers.target.decode(ids).strip()
            text = self._ended(segment, text)
            if marks is not None:
                text = text.translate(marks.references)
            return Rendering(text, hypothesis.score, hypothesis.reason)
        source_ids = segment.source_ids
        target, source, attention = self._sides(segment, hypothesis)
        marked = _marked(segment, target, source, attention)
        text = marked.text() if marked else self._text(segment, target, source, attention)
        quality = tuple(self._quality(hypothesis.tokens, target, marked))
        if attention is None:
            text = text if marked else text.strip()
            return Rendering(text, hypothesis.score, hypothesis.reason, quality=quality)
        sides = marked.word_alignment() if marked else (target, source, attention)
        return Rendering(
            text.strip(" "),  # line breaks count
            hypothesis.score,
            hypothesis.reason,
            _aligned(*sides) if self._job.returns_alignments else None,
            tuple(self._sentence_attention(source_ids, ids, attention)),
            quality=quality,
        )

    def marked(self, segment: Segment, hypothesis: Hypothesis) -> MarkedTranslation | None:
        """Return the translation of a segment with tags or protected text; None for others."""
        if segment.marks is None or segment.marks.is_plain_text:
            return None
        return _marked(segment, *self._sides(segment, hypothesis))

    def _sides(
        self, segment: Segment, hypothesis: Hypothesis
    ) -> tuple[TokenizedText, TokenizedText, Array | None]:
        """Return the target, the source and the attention between their tokens."""
        ids, source_ids = hypothesis.tokens.ids, segment.source_ids
        source = TokenizedText.from_pieces(self._tokenizers.source_pieces(source_ids, self._frame))
        attention = attention_matrix(hypothesis.tokens, len(source_ids))
        return TokenizedText.from_pieces(self._pieces(ids, attention, source)), source, attention

    def _pieces(
        self, ids: list[int], attention: Array | None, source: TokenizedText
    ) -> list[bytes]:
        pieces = self._tokenizers.target.pieces(ids)
        if self._unknown_id is None or attention is None:
            return pieces
        is_unknown = [token_id == self._unknown_id for token_id in ids]
        return replace_unknown(pieces, is_unknown, attention, source)

    def _text(
        self,
        segment: Segment,
        target: TokenizedText,
        source: TokenizedText,
        attention: Array | None,
    ) -> str:
        if segment.marks is not None:
            text = self._ended(segment, target.text.strip())
            return text.translate(segment.marks.references)
        if self._placeholders is None or attention is None:
            return target.text
        return replace_placeholders(target, source, attention, self._placeholders)

    def _ended(self, segment: Segment, text: str) -> str:
        """Return a translation that ends with a mark if its segment does, and with none else."""
        if not self._job.protection or self._job.target_prefix or not text:
            return text
        text = match_end_marks(segment.text, text)
        if segment.text.endswith((":", ";")):
            return format_sentence_start(segment.text, text, primary_language(self._job.target))
        return text

    def _quality(
        self, tokens: OutputTokens, target: TokenizedText, marked: MarkedTranslation | None
    ) -> Iterator[SegmentQuality]:
        if self._job.returns_quality:
            written = marked.tokenized_text() if marked else target
            shares = marked.token_shares() if marked else np.eye(len(tokens))
            yield segment_quality(self._calibration, tokens.logprobs, written, shares)

    def _sentence_attention(
        self, source_ids: TokenIds, target_ids: Sequence[int], attention: Array
    ) -> Iterator[SentenceAttention]:
        if self._job.returns_attention:
            yield sentence_attention(
                self._tokenizers, self._frame, source_ids, target_ids, attention
            )


def _marked(
    segment: Segment, target: TokenizedText, source: TokenizedText, attention: Array | None
) -> MarkedTranslation | None:
    """Return the translation of a segment with tags or protected text; None for others."""
    if segment.marks is None or segment.marks.is_plain_text:
        return None
    return MarkedTranslation(segment.marks, target, source, attention)


def attention_matrix(tokens: OutputTokens, num_source_tokens: int) -> Array | None:
    """Return the attention of a target's tokens: f32 [target tokens, source tokens]; None if it was
    not asked for.
    """
    if len(tokens.alignments) < len(tokens.ids):
        return None
    return np.array(tokens.alignments, np.float32).reshape(len(tokens.ids), num_source_tokens)


def _aligned(target: TokenizedText, source: TokenizedText, attention: Array) -> AlignedWords:
    """Align words separated by white space.

    attention: [tokens or words of the target, of the source]
    """
    found = link_words(word_attention(attention, target, source))
    return AlignedWords(tuple(source.text.split()), tuple(target.text.split()), tuple(found))


def join_segments(
    layouts: Sequence[TextLayout], of_segments: Sequence[Sequence[Rendering]], count: int
) -> Iterator[tuple[Rendering, ...]]:
    """Yield the different translations of each text, best first.

    of_segments: the translations of the segments of all texts.
    count: maximum number of translations of a text.
    """
    segments = iter(of_segments)
    for layout in layouts:
        parts = list(islice(segments, len(layout.segments)))
        distinct: dict[str, Rendering] = {}
        for whole in _ranks(layout, parts):
            distinct.setdefault(whole.text, whole)
        yield tuple(islice(distinct.values(), count))


def _ranks(layout: TextLayout, parts: Sequence[Sequence[Rendering]]) -> Iterator[Rendering]:
    """Yield texts made of the best translations of all segments, of the second best, and so on. A
    segment with fewer translations repeats its last one.
    """
    for rank in range(max(map(len, parts), default=1)):
        yield _joined_rendering(layout, [part[min(rank, len(part) - 1)] for part in parts])


def _joined_rendering(layout: TextLayout, parts: Sequence[Rendering]) -> Rendering:
    text = layout.fill([part.text for part in parts])
    if not parts:
        return Rendering(text)
    score = sum(part.score for part in parts) / len(parts)
    reason = min((part.reason for part in parts), key=_BY_SEVERITY.index)
    alignments = [part.alignment for part in parts if part.alignment is not None]
    attention = tuple(sentence for part in parts for sentence in part.attention)
    maps = tuple(sentence for part in parts for sentence in part.attention_maps)
    quality = tuple(segment for part in parts for segment in part.quality)
    alignment = _joined_alignments(alignments) if alignments else None
    origins = tuple(origin for part in parts for origin in part.origins)
    return Rendering(text, score, reason, alignment, attention, maps, quality, origins)


def _joined_alignments(parts: Sequence[AlignedWords]) -> AlignedWords:
    """Concatenate alignments; the word indices of each continue after those before."""
    return AlignedWords(
        tuple(word for part in parts for word in part.source_words),
        tuple(word for part in parts for word in part.target_words),
        tuple(_shifted_links(parts)),
    )


def _shifted_links(parts: Sequence[AlignedWords]) -> Iterator[Link]:
    num_source = num_target = 0
    for part in parts:
        for source, target in part.links:
            yield Link(num_source + source, num_target + target)
        num_source += len(part.source_words)
        num_target += len(part.target_words)


def pair_score(
    tokenizers: TokenizerPair,
    shapes: Shapes,
    frame: SpecialTokens,
    request: GenerationRequest,
    end: FinalEvent,
) -> PairScore:
    """Return the score of one pair.

    request: one of `TranslationRequests.scores`.
    end: its final event.
    """
    end = require_finished(end)
    tokens, stop_logprob = end.best.tokens, end.best.stop_logprob
    assert stop_logprob is not None, "a forced stop token ends the request"
    texts = map(token_text, tokenizers.target.pieces(tokens.ids))
    named = zip(texts, tokens.logprobs, strict=True)
    source_ids, queries = request.source_ids or (), request.attention_queries
    attention = None
    if request.alignment_heads is not None:
        matrix = attention_matrix(tokens, len(source_ids))
        assert matrix is not None, "attention was asked for"
        attention = sentence_attention(tokenizers, frame, source_ids, tokens.ids, matrix)
    maps = sentence_maps(tokenizers, frame, shapes, queries, source_ids, tokens, end)
    return PairScore((*named, ("", stop_logprob)), attention, maps)


def sentence_attention(
    tokenizers: TokenizerPair,
    frame: SpecialTokens,
    source_ids: TokenIds,
    target_ids: Sequence[int],
    attention: Array,
) -> SentenceAttention:
    """Return the attention of a translation by tokens and by words.

    attention: [target tokens, source tokens]
    """
    source_pieces = tokenizers.source_pieces(source_ids, frame)
    target_pieces = tokenizers.target.pieces(target_ids)
    source, target = map(TokenizedText.from_pieces, (source_pieces, target_pieces))
    source_words, target_words = (find_words(text.text, DRAWN_WORD) for text in (source, target))
    by_word = word_attention(attention, target, source, target_words, source_words)
    elsewhere = np.maximum(1 - by_word.sum(axis=1, keepdims=True), 0)
    return SentenceAttention(
        tuple(map(token_text, source_pieces)),
        tuple(map(token_text, target_pieces)),
        _rows(attention),
        (*(source.text[word.start : word.end] for word in source_words), ""),
        tuple(target.text[word.start : word.end] for word in target_words),
        _rows(np.hstack([by_word, elsewhere])),
    )


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))


def sentence_maps(
    tokenizers: TokenizerPair,
    frame: SpecialTokens,
    shapes: Shapes,
    queries: Sequence[AttentionQuery],
    source_ids: TokenIds,
    tokens: OutputTokens,
    end: FinishedEvent,
) -> tuple[AttentionMap, ...]:
    """Return a map for each attention query of one request."""
    if not queries:
        return ()
    source = tokenizers.source_pieces(source_ids, frame)
    reported = tokenizers.target.pieces(tokens.ids)
    given = ("",) * frame.num_given
    texts = TokenTexts(tuple(map(token_text, source)), given, tuple(map(token_text, reported)))
    return attention_maps(queries, shapes, tokens.attention_pieces, end, texts)
