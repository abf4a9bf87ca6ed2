"""The certain part of translations in progress: text that was sent is never taken back, and the
sentences of a text are sent in order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from serving.pipelines.decoding import require_finished
from serving.pipelines.translation.fallback import Fallback
from serving.pipelines.translation.job import TranslationDelta
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.rendering import SegmentRenderer
from serving.requests.request import (
    Event,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    TokenEvent,
)
from serving.text.end_marks import SENTENCE_END_MARKS
from serving.text.sentences import TextLayout
from serving.text.tokenizer import Detokenizer, Tokenizer

# At the end of a translation whose source has no mark there.
_MAY_BE_LEFT_OUT = " \u00a0\u202f" + SENTENCE_END_MARKS
References = Mapping[int, str | None]


class GrowingSentence:
    """What is certain of one sentence's translation.

    references: how characters are written that markup has another use for; None where the end may
        change what tokens say: then nothing is certain but the whole.
    reason: None until it has ended.
    """

    def __init__(self, tokenizer: Tokenizer, references: References | None) -> None:
        self._detokenizer = None if references is None else Detokenizer(tokenizer)
        self._references = references or {}
        self._written = ""
        self._certain = ""
        self._num_sent = 0
        self.reason: FinishReason | None = None

    def push(self, token_id: int) -> None:
        if self._detokenizer is not None:
            self._written += self._detokenizer.push(token_id)
            certain = self._written.strip().rstrip(_MAY_BE_LEFT_OUT)
            self._certain = certain.translate(self._references)

    def finish(self, text: str, reason: FinishReason) -> None:
        assert text.startswith(self._certain[: self._num_sent]), "sent text must not change"
        self._certain, self.reason = text, reason

    def take(self) -> str:
        """Return the certain text that was not sent yet."""
        unsent, self._num_sent = self._certain[self._num_sent :], len(self._certain)
        return unsent


@dataclass(slots=True)
class GrowingText:
    """The sentences of one text; those before `place` have been sent."""

    number: int
    layout: TextLayout
    sentences: list[GrowingSentence]
    place: int = 0
    has_begun: bool = field(default=False)

    def deltas(self) -> Iterator[TranslationDelta]:
        """Yield the text that can be sent now."""
        while self.place < len(self.sentences):
            sentence = self.sentences[self.place]
            piece, reason = sentence.take(), sentence.reason
            if not piece and reason is None:
                return
            if not self.has_begun:
                piece = self.layout.gaps[self.place] + piece
            if reason is not None and sentence is self.sentences[-1]:
                piece += self.layout.gaps[-1]
            yield TranslationDelta(self.number, self.place, piece, reason)
            self.has_begun = reason is None
            if reason is None:
                return
            self.place += 1


class GrowingTexts:
    """Reads the events of a plan's requests as they come, and keeps the final ones.

    fallback: where the events come from; its plan may change with each final event.
    """

    def __init__(
        self,
        fallback: Fallback,
        requests: Sequence[GenerationRequest],
        renderer: SegmentRenderer,
        tokenizer: Tokenizer,
    ) -> None:
        plan = fallback.plan
        self._fallback, self._renderer = fallback, renderer
        self._ends: dict[int, FinishedEvent] = {}
        self._numbers = {request.request_id: n for n, request in enumerate(requests)}
        self._segments = dict(_first_requests(plan))
        self._sentences = {
            number: GrowingSentence(tokenizer, _references(requests[number], plan.segments[place]))
            for number, place in self._segments.items()
        }
        waiting = iter(self._sentences.values())
        sentences = [
            next(waiting)
            if segment.fixed_translation is None
            else _finish_sentence(segment.fixed_translation, tokenizer)
            for segment in plan.segments
        ]
        self._texts = list(_texts(plan.layouts, sentences))
        self._text_of = {id(sentence): text for text in self._texts for sentence in text.sentences}

    @property
    def outcomes(self) -> list[FinishedEvent]:
        """Return the final event of each request, after all have ended."""
        return [self._ends[number] for number in range(len(self._numbers))]

    def push(self, events: Sequence[Event]) -> Iterator[TranslationDelta]:
        """Yield what is certain now. Raises what a request has failed with."""
        touched: dict[int, GrowingText] = {}
        for event in events:
            number = self._numbers[event.request_id]
            self._read(number, event)
            if number in self._sentences:
                text = self._text_of[id(self._sentences[number])]
                touched[text.number] = text
        for text in touched.values():
            yield from text.deltas()

    def fixed_deltas(self) -> Iterator[TranslationDelta]:
        """Yield the translations that are fixed before any event has come."""
        for text in self._texts:
            yield from text.deltas()

    def blank_deltas(self) -> Iterator[TranslationDelta]:
        """Yield the texts in which there is nothing to translate."""
        for text in self._texts:
            if not text.sentences and (blank := text.layout.fill([])):
                yield TranslationDelta(text.number, 0, blank, FinishReason.STOP)

    def _read(self, number: int, event: Event) -> None:
        sentence = self._sentences.get(number)
        if isinstance(event, TokenEvent):
            if sentence is not None:
                sentence.push(event.token_id)
            return
        self._ends[number] = end = require_finished(event)
        if sentence is not None:
            segment = self._fallback.plan.segments[self._segments[number]]
            rendering = self._renderer.render(segment, end.best)
            sentence.finish(rendering.text, rendering.reason)


def _finish_sentence(text: str, tokenizer: Tokenizer) -> GrowingSentence:
    sentence = GrowingSentence(tokenizer, None)
    sentence.finish(text, FinishReason.STOP)
    return sentence


def _references(request: GenerationRequest, segment: Segment) -> References | None:
    if request.alignment_heads is not None or segment.is_cut or segment.is_rest:
        return None
    if segment.marks is None:
        return {}
    return segment.marks.references if segment.marks.is_plain_text else None


def _first_requests(plan: TranslationPlan) -> Iterator[tuple[int, int]]:
    """Yield for each segment that is not fixed the number of its first request, which makes its
    best translation, and its own.
    """
    number = 0
    for place, segment in enumerate(plan.segments):
        if segment.prefixes:
            yield number, place
        number += len(segment.prefixes)


def _texts(
    layouts: Sequence[TextLayout], sentences: Sequence[GrowingSentence]
) -> Iterator[GrowingText]:
    start = 0
    for number, layout in enumerate(layouts):
        end = start + len(layout.segments)
        yield GrowingText(number, layout, list(sentences[start:end]))
        start = end
