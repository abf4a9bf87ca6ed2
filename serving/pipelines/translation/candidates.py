"""From the engine's events to translations of segments, and from those to translations of texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from serving.pipelines.engine_port import raise_failure
from serving.pipelines.jobs import AlignedWords, Rendering
from serving.request import Event, FinishedEvent, FinishReason, TokenEvent
from serving.text.alignment import Link
from serving.text.splitting import Layout

_GRAVEST = (FinishReason.CONSTRAINT, FinishReason.LENGTH, FinishReason.STOP)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One translation of a segment; see `Rendering`."""

    tokens: tuple[TokenEvent, ...]
    score: float
    reason: FinishReason


def successful_end(events: Sequence[Event]) -> FinishedEvent:
    end = events[-1]
    if not isinstance(end, FinishedEvent):
        assert not isinstance(end, TokenEvent), "a request's last event is final"
        raise_failure(end)
    return end


def candidates_of(events: Sequence[Event], num_forced: int) -> list[Candidate]:
    """The hypotheses of a beam search, best first; else what was generated."""
    end = successful_end(events)
    if end.hypotheses:
        return [Candidate(found.tokens, found.score, found.reason) for found in end.hypotheses]
    tokens = tuple(event for event in events if isinstance(event, TokenEvent))
    logprobs = [token.logprob for token in tokens[num_forced:]]
    if end.stop_logprob is not None:
        logprobs.append(end.stop_logprob)
    return [Candidate(tokens, sum(logprobs) / max(len(logprobs), 1), end.reason)]


def renderings_of(
    layouts: Sequence[Layout], of_segments: Sequence[Sequence[Rendering]], count: int
) -> Iterator[tuple[Rendering, ...]]:
    """The first so many different translations of each text, of those of its segments."""
    segments = iter(of_segments)
    for layout in layouts:
        parts = list(islice(segments, len(layout.segments)))
        distinct: dict[str, Rendering] = {}
        for whole in _ranks(layout, parts):
            distinct.setdefault(whole.text, whole)
        yield tuple(islice(distinct.values(), count))


def _ranks(layout: Layout, parts: Sequence[Sequence[Rendering]]) -> Iterator[Rendering]:
    """The best of all segments, the second best of all ...; who has no more stays at the last."""
    for rank in range(max(map(len, parts), default=1)):
        yield _whole(layout, [part[min(rank, len(part) - 1)] for part in parts])


def _whole(layout: Layout, parts: Sequence[Rendering]) -> Rendering:
    text = layout.fill([part.text for part in parts])
    if not parts:
        return Rendering(text)
    score = sum(part.score for part in parts) / len(parts)
    reason = min((part.reason for part in parts), key=_GRAVEST.index)
    alignments = [part.alignment for part in parts if part.alignment is not None]
    attention = tuple(sentence for part in parts for sentence in part.attention)
    return Rendering(text, score, reason, _chained(alignments) if alignments else None, attention)


def _chained(parts: Sequence[AlignedWords]) -> AlignedWords:
    """One after the other: each part's words are counted from where the last one's end."""
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
