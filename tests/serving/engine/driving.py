"""Helpers that drive an engine to the end and gather what it said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.engine.engine import Engine
from serving.requests.request import (
    Event,
    FinishedEvent,
    GenerationRequest,
    OutputTokens,
    TokenEvent,
    is_final,
)


@dataclass
class Story:
    """All events of one request. streamed: what came before the final one."""

    streamed: list[TokenEvent] = field(default_factory=list)
    final: Event | None = None

    def add(self, event: Event) -> None:
        assert self.final is None, f"{event} after the final event {self.final}"
        if isinstance(event, TokenEvent):
            self.streamed.append(event)
            return
        assert is_final(event)
        self.final = event
        if isinstance(event, FinishedEvent) and self.streamed:
            assert _comparable_tokens(
                OutputTokens.from_events(self.streamed)
            ) == _comparable_tokens(event.best.tokens)

    @property
    def tokens(self) -> OutputTokens:
        """Return all tokens; of a request that has not finished, those that were streamed."""
        if isinstance(self.final, FinishedEvent):
            return self.final.best.tokens
        return OutputTokens.from_events(self.streamed)

    @property
    def token_ids(self) -> list[int]:
        return self.tokens.ids

    @property
    def said(self) -> list[tuple[int, float]]:
        """Bit for bit: a float32 survives the way to a Python float."""
        return [(token_id, logprob) for token_id, logprob, _ in self.tokens.iter_tokens()]


def record_events(stories: dict[str, Story], events: Iterable[Event]) -> None:
    for event in events:
        stories.setdefault(event.request_id, Story()).add(event)


def run_all(engine: Engine, requests: Iterable[GenerationRequest]) -> dict[str, Story]:
    stories: dict[str, Story] = {}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        record_events(stories, engine.step())
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
        record_events(stories, engine.step())
        assert engine.stats().num_rows <= engine.config.slots
        tick += 1
    assert engine.stats().num_rows == engine.stats().num_waiting == 0
    return stories


def run_alone(engine: Engine, request: GenerationRequest) -> Story:
    return run_all(engine, [request])[request.request_id]


def comparable_story(story: Story) -> object:
    """Everything that was said, bit for bit."""
    final = story.final
    assert isinstance(final, FinishedEvent)
    return final.scored_logprobs, [
        (
            hypothesis.score,
            hypothesis.reason,
            hypothesis.stop_logprob,
            _comparable_tokens(hypothesis.tokens),
        )
        for hypothesis in final.hypotheses
    ]


def _comparable_tokens(tokens: OutputTokens) -> object:
    return tokens, [alignment.tobytes() for alignment in tokens.alignments]
