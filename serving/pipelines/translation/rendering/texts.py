"""Puts the translations of segments together to translations of texts."""

from collections.abc import Iterator, Sequence
from itertools import islice

from serving.pipelines.translation.job import AlignedWords, Rendering
from serving.request import FinishReason
from serving.text.alignment import Link
from serving.text.splitting import TextLayout

_GRAVEST = (FinishReason.CONSTRAINT, FinishReason.LENGTH, FinishReason.STOP)


def text_renderings(
    layouts: Sequence[TextLayout], of_segments: Sequence[Sequence[Rendering]], count: int
) -> Iterator[tuple[Rendering, ...]]:
    """Yield the different translations of each text, best first.

    of_segments: the translations of the segments of all texts in one row.
    count: most translations of a text.
    """
    segments = iter(of_segments)
    for layout in layouts:
        parts = list(islice(segments, len(layout.segments)))
        distinct: dict[str, Rendering] = {}
        for whole in _ranks(layout, parts):
            distinct.setdefault(whole.text, whole)
        yield tuple(islice(distinct.values(), count))


def _ranks(layout: TextLayout, parts: Sequence[Sequence[Rendering]]) -> Iterator[Rendering]:
    """Yield the best of all segments, the second best of all, and so on; a segment that has no
    more stays at its last.
    """
    for rank in range(max(map(len, parts), default=1)):
        yield _whole(layout, [part[min(rank, len(part) - 1)] for part in parts])


def _whole(layout: TextLayout, parts: Sequence[Rendering]) -> Rendering:
    text = layout.fill([part.text for part in parts])
    if not parts:
        return Rendering(text)
    score = sum(part.score for part in parts) / len(parts)
    reason = min((part.reason for part in parts), key=_GRAVEST.index)
    alignments = [part.alignment for part in parts if part.alignment is not None]
    attention = tuple(sentence for part in parts for sentence in part.attention)
    seen = tuple(sentence for part in parts for sentence in part.seen)
    alignment = _chained(alignments) if alignments else None
    return Rendering(text, score, reason, alignment, attention, seen)


def _chained(parts: Sequence[AlignedWords]) -> AlignedWords:
    """Join alignments one after the other: each counts its words from where the last one ends."""
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
