"""Helpers that drive an engine to the end and gather what it said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.engine.engine import Engine
from serving.request import Event, FinishedEvent, GenerationRequest, TokenEvent, is_final


@dataclass
class Story:
    """All events of one request."""

    tokens: list[TokenEvent] = field(default_factory=list)
    final: Event | None = None

    def add(self, event: Event) -> None:
        assert self.final is None, f"{event} after the final event {self.final}"
        if isinstance(event, TokenEvent):
            self.tokens.append(event)
        else:
            assert is_final(event)
            self.final = event

    @property
    def token_ids(self) -> list[int]:
        return [event.token_id for event in self.tokens]

    @property
    def said(self) -> list[tuple[int, float]]:
        """Bit for bit: a float32 survives the way to a Python float."""
        return [(event.token_id, event.logprob) for event in self.tokens]


def tell(stories: dict[str, Story], events: Iterable[Event]) -> None:
    for event in events:
        stories.setdefault(event.request_id, Story()).add(event)


def run_all(engine: Engine, requests: Iterable[GenerationRequest]) -> dict[str, Story]:
    stories: dict[str, Story] = {}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        tell(stories, engine.step())
    return stories


def run_as_they_come(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    arrivals: Sequence[int],
    cancels: Mapping[int, int],
) -> dict[str, Story]:
    """arrivals: the step before which each is submitted. cancels: of some, by number, the step
    before which it is cancelled. Rows never exceed the slots, and all come back.
    """
    stories: dict[str, Story] = {}
    tick, last = 0, max((*arrivals, *cancels.values()))
    while engine.has_work or tick <= last:
        for number, request in enumerate(requests):
            if arrivals[number] == tick:
                engine.submit(request)
            if cancels.get(number) == tick:
                engine.cancel(request.request_id)
        tell(stories, engine.step())
        assert engine.stats().num_rows <= engine.config.slots
        tick += 1
    assert engine.stats().num_rows == engine.stats().num_waiting == 0
    return stories


def run_alone(engine: Engine, request: GenerationRequest) -> Story:
    return run_all(engine, [request])[request.request_id]


def told(story: Story) -> object:
    """Everything that was said, bit for bit."""
    final = story.final
    assert isinstance(final, FinishedEvent)
    hypotheses = [(each.score, _told(each.tokens)) for each in final.hypotheses]
    return _told(story.tokens), final.reason, final.stop_logprob, hypotheses


def _told(tokens: list[TokenEvent] | tuple[TokenEvent, ...]) -> list[object]:
    return [
        (
            each.token_id,
            each.logprob,
            each.top,
            b"" if each.alignment is None else each.alignment.tobytes(),
        )
        for each in tokens
    ]
