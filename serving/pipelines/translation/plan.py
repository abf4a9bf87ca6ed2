"""The segments of a translation job, and how their translations join into texts again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from serving.pipelines.translation.glossary import MatchedTerm
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens
from serving.requests.parameters import TokenIds
from serving.requests.request import Constraint
from serving.text.markup.segments import MarkedSegment
from serving.text.sentences import TextLayout


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is translated by itself, mostly a sentence.

    place: its number among the segments of its text, from 0.
    terms: the terms of the glossary that occur in it.
    prefixes: beginnings of its translations; each is a request.
    beginning: a constraint on the next tokens, if a prefix ends within a word.
    marks: tags and protected text among its words; None if there can be none.
    memory_score: how much it is like the unit of a translation memory that it is translated by.
    is_cut: whether it is a part of a sentence that goes on with the next segment.
    is_rest: whether it is a part of a sentence that the segment before begins.
    fixed_translation: its translation as it is written, if nothing is left to be done; one of a
        translation memory then has no prefixes and makes no request. Where a translation memory
        leaves the tags to the model, the only prefix is the whole translation, with its end.
    """

    text: str
    source_ids: TokenIds
    place: int = 0
    terms: tuple[MatchedTerm, ...] = ()
    prefixes: tuple[TokenIds, ...] = ((),)
    beginning: Constraint | None = None
    marks: MarkedSegment | None = None
    memory_score: int | None = None
    is_cut: bool = False
    is_rest: bool = False
    fixed_translation: str | None = None

    @property
    def has_inner_marks(self) -> bool:
        """Return whether marks stand among its words, so that attention places them."""
        return self.marks is not None and not self.marks.is_plain_text


@dataclass(frozen=True, slots=True)
class TranslationPlan:
    """The segments of all texts of a job, and how to join them into texts again.

    special_tokens: those of the job's languages.
    layouts: one for each text.
    segments: of all texts, in order.
    """

    special_tokens: LanguagePairTokens
    layouts: tuple[TextLayout, ...]
    segments: tuple[Segment, ...]

    @property
    def first_segments(self) -> list[int]:
        """Return the number of the first segment of each text that has segments."""
        return [number for number, segment in enumerate(self.segments) if segment.place == 0]

    def with_changes(self, changes: dict[int, dict[str, Any]]) -> "TranslationPlan":
        """Return the plan with some fields of some segments changed.

        changes: by the number of a segment, new values by field name.
        """
        segments = list(self.segments)
        for number, fields in changes.items():
            segments[number] = replace(segments[number], **fields)
        return replace(self, segments=tuple(segments))

    def segments_of_requests(self) -> Iterator[Segment]:
        """Yield the segment of each request: one with several prefixes several times."""
        return (segment for segment in self.segments for _ in segment.prefixes)
