"""Writes a hypothesis as text: unknown words and placeholders replaced, words aligned, attention
reported.
"""

from collections.abc import Iterator, Sequence

from serving.parameters import TokenIds
from serving.pipelines.translation.attention import attention_matrix, sentence_attention
from serving.pipelines.translation.hypotheses import ranked_hypotheses
from serving.pipelines.translation.job import (
    AlignedWords,
    Rendering,
    SentenceAttention,
    TranslationJob,
)
from serving.pipelines.translation.planning import TranslationPlan
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.request import Event, Hypothesis
from serving.text.alignment import Array, TokenizedText, links, word_attention
from serving.text.replacement import (
    PLACEHOLDER,
    placeholder_pattern,
    replace_placeholders,
    replace_unknown,
)


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
    ) -> None:
        self._job, self._plan = job, plan
        self._frame, self._tokenizers = plan.frame, tokenizers
        self._unknown_id = unknown_id if job.replaces_unknown else None
        names = job.placeholders
        self._placeholders = placeholder_pattern(names) if names else PLACEHOLDER

    def renderings(self, outcomes: Sequence[Sequence[Event]]) -> list[list[Rendering]]:
        """Return the translations of each segment of the plan, prefix by prefix, best first.

        outcomes: the events of the plan's requests.
        """
        events = iter(outcomes)
        return [
            [
                self.rendering(segment.source_ids, hypothesis)
                for prefix in segment.prefixes
                for hypothesis in ranked_hypotheses(next(events), len(prefix))
            ]
            for segment in self._plan.segments
        ]

    def rendering(self, source_ids: TokenIds, hypothesis: Hypothesis) -> Rendering:
        ids = [token.token_id for token in hypothesis.tokens]
        if not self._job.wants_attention:
            text = self._tokenizers.target.decode(ids).strip()
            return Rendering(text, hypothesis.score, hypothesis.reason)
        source = TokenizedText.from_pieces(self._tokenizers.source_pieces(source_ids, self._frame))
        attention = attention_matrix(hypothesis.tokens, len(source_ids))
        target = TokenizedText.from_pieces(self._pieces(ids, attention, source))
        return Rendering(
            self._text(target, source, attention).strip(),
            hypothesis.score,
            hypothesis.reason,
            _aligned(target, source, attention) if self._job.wants_alignments else None,
            tuple(self._sentence_attention(source_ids, ids, attention)),
        )

    def _pieces(self, ids: list[int], attention: Array, source: TokenizedText) -> list[bytes]:
        pieces = self._tokenizers.target.pieces(ids)
        if self._unknown_id is None:
            return pieces
        is_unknown = [token_id == self._unknown_id for token_id in ids]
        return replace_unknown(pieces, is_unknown, attention, source)

    def _text(self, target: TokenizedText, source: TokenizedText, attention: Array) -> str:
        if self._job.placeholders is None:
            return target.text
        return replace_placeholders(target, source, attention, self._placeholders)

    def _sentence_attention(
        self, source_ids: TokenIds, target_ids: Sequence[int], attention: Array
    ) -> Iterator[SentenceAttention]:
        if self._job.tells_attention:
            yield sentence_attention(
                self._tokenizers, self._frame, source_ids, target_ids, attention
            )


def _aligned(target: TokenizedText, source: TokenizedText, attention: Array) -> AlignedWords:
    """Link words that white space parts."""
    found = links(word_attention(attention, target, source))
    return AlignedWords(tuple(source.text.split()), tuple(target.text.split()), tuple(found))
