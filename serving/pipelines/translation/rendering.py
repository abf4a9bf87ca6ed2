"""A candidate's tokens to text: unknown words and placeholders replaced, words aligned, attention
told.
"""

from collections.abc import Sequence

from serving.parameters import TokenIds
from serving.pipelines.jobs import AlignedWords, Rendering, SentenceAttention, TranslationJob
from serving.pipelines.translation.attention import attention_of, sentence_attention
from serving.pipelines.translation.candidates import Candidate
from serving.pipelines.translation.sides import Affixes, Sides
from serving.text.alignment import Array, TokenizedText, links, word_attention
from serving.text.replacement import (
    PLACEHOLDER,
    placeholder_pattern,
    replace_placeholders,
    replace_unknown,
)


class Renderer:
    """unknown_id: the model's token for what it cannot write; None if it can write anything."""

    def __init__(
        self, sides: Sides, affixes: Affixes, unknown_id: int | None, job: TranslationJob
    ) -> None:
        self._sides, self._affixes = sides, affixes
        self._unknown_id = unknown_id if job.replaces_unknown else None
        self._job = job
        names = job.placeholders
        self._placeholders = placeholder_pattern(names) if names else PLACEHOLDER

    def rendering(self, source_ids: TokenIds, candidate: Candidate) -> Rendering:
        ids = [token.token_id for token in candidate.tokens]
        if not self._job.wants_attention:
            text = self._sides.target.decode(ids).strip()
            return Rendering(text, candidate.score, candidate.reason)
        source = TokenizedText.of(self._sides.source_pieces(source_ids, self._affixes))
        attention = attention_of(candidate.tokens, len(source_ids))
        target = TokenizedText.of(self._pieces(ids, attention, source))
        text = target.text
        if self._job.placeholders is not None:
            text = replace_placeholders(target, source, attention, self._placeholders)
        return Rendering(
            text.strip(),
            candidate.score,
            candidate.reason,
            _aligned(target, source, attention) if self._job.wants_alignments else None,
            self._told(source_ids, ids, attention),
        )

    def _pieces(self, ids: list[int], attention: Array, source: TokenizedText) -> list[bytes]:
        pieces = self._sides.target.pieces(ids)
        if self._unknown_id is None:
            return pieces
        is_unknown = [token_id == self._unknown_id for token_id in ids]
        return replace_unknown(pieces, is_unknown, attention, source)

    def _told(
        self, source_ids: TokenIds, target_ids: Sequence[int], attention: Array
    ) -> tuple[SentenceAttention, ...]:
        if not self._job.tells_attention:
            return ()
        told = sentence_attention(self._sides, self._affixes, source_ids, target_ids, attention)
        return (told,)


def _aligned(target: TokenizedText, source: TokenizedText, attention: Array) -> AlignedWords:
    """Words are parted by white space."""
    found = links(word_attention(attention, target, source))
    return AlignedWords(tuple(source.text.split()), tuple(target.text.split()), tuple(found))
