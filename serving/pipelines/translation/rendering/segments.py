"""Writes a hypothesis as text: unknown words and placeholders replaced, words aligned, attention
reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from serving.parameters import TokenIds
from serving.pipelines.translation.attention import attention_matrix, sentence_attention
from serving.pipelines.translation.hypotheses import ranked_hypotheses, successful_end
from serving.pipelines.translation.job import (
    AlignedWords,
    Rendering,
    SentenceAttention,
    TranslationJob,
)
from serving.pipelines.translation.looking import SentenceLooks
from serving.pipelines.translation.planning import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.request import Event, Hypothesis
from serving.text.alignment import Array, TokenizedText, links, word_attention
from serving.text.markup.rendering import MarkedTranslation
from serving.text.replacement import replace_placeholders, replace_unknown


class SegmentRenderer:
    """Writes the hypotheses of a job's segments as text.

    unknown_id: the model's token for what it cannot write; None if it can write anything.
    """

    def __init__(
        self,
        job: TranslationJob,
        plan: TranslationPlan,
        tokenizers: TokenizerPair,
        unknown_id: int | None,
        looks: SentenceLooks,
    ) -> None:
        self._job, self._plan = job, plan
        self._frame, self._tokenizers = plan.frame, tokenizers
        self._unknown_id = unknown_id if job.replaces_unknown else None
        self._placeholders = job.placeholder_pattern
        self._looks = looks

    def renderings(self, outcomes: Sequence[Sequence[Event]]) -> list[list[Rendering]]:
        """Return the translations of each segment of the plan, prefix by prefix, best first.

        outcomes: the events of the plan's requests.
        """
        events = iter(outcomes)
        return [
            [
                rendering
                for prefix in segment.prefixes
                for rendering in self._ranked(segment, next(events), len(prefix))
            ]
            for segment in self._plan.segments
        ]

    def _ranked(
        self, segment: Segment, events: Sequence[Event], num_forced: int
    ) -> Iterator[Rendering]:
        best, *others = ranked_hypotheses(events, num_forced)
        rendering = self.rendering(segment, best)
        if looks := self._job.looks:
            where = looks, self._frame, segment.source_ids, best.tokens, successful_end(events)
            rendering = replace(rendering, seen=(self._looks.seen(*where),))
        yield rendering
        yield from (self.rendering(segment, other) for other in others)

    def rendering(self, segment: Segment, hypothesis: Hypothesis) -> Rendering:
        ids = [token.token_id for token in hypothesis.tokens]
        if not self._job.wants_attention and segment.marks is None:
            text = self._tokenizers.target.decode(ids).strip()
            return Rendering(text, hypothesis.score, hypothesis.reason)
        source_ids = segment.source_ids
        source = TokenizedText.from_pieces(self._tokenizers.source_pieces(source_ids, self._frame))
        attention = _attention(hypothesis, len(source_ids))
        target = TokenizedText.from_pieces(self._pieces(ids, attention, source))
        marked = _marked(segment, target, source, attention)
        text = marked.text() if marked else self._text(segment, target, source, attention)
        if attention is None:
            return Rendering(text, hypothesis.score, hypothesis.reason)
        sides = marked.words() if marked else (target, source, attention)
        return Rendering(
            text.strip(" "),  # line breaks count
            hypothesis.score,
            hypothesis.reason,
            _aligned(*sides) if self._job.wants_alignments else None,
            tuple(self._sentence_attention(source_ids, ids, attention)),
        )

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
            return target.text.strip().translate(segment.marks.references)
        if self._placeholders is None or attention is None:
            return target.text
        return replace_placeholders(target, source, attention, self._placeholders)

    def _sentence_attention(
        self, source_ids: TokenIds, target_ids: Sequence[int], attention: Array
    ) -> Iterator[SentenceAttention]:
        if self._job.tells_attention:
            yield sentence_attention(
                self._tokenizers, self._frame, source_ids, target_ids, attention
            )


def _marked(
    segment: Segment, target: TokenizedText, source: TokenizedText, attention: Array | None
) -> MarkedTranslation | None:
    """Return the translation of a segment in which more stands than words."""
    if segment.marks is None or segment.marks.is_one_text:
        return None
    return MarkedTranslation(segment.marks, target, source, attention)


def _attention(hypothesis: Hypothesis, num_source_tokens: int) -> Array | None:
    """Return its attention: [target tokens, source tokens], f32; None if there is none."""
    if any(token.attention is None for token in hypothesis.tokens):
        return None
    return attention_matrix(hypothesis.tokens, num_source_tokens)


def _aligned(target: TokenizedText, source: TokenizedText, attention: Array) -> AlignedWords:
    """Link words that white space parts.

    attention: [tokens or words of the target, of the source]
    """
    found = links(word_attention(attention, target, source))
    return AlignedWords(tuple(source.text.split()), tuple(target.text.split()), tuple(found))
