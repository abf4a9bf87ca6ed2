"""The closed loop keeps every user busy, leaves the warm-up out and stops when it has enough."""

import asyncio
import itertools

from loadtest.arrivals import PAUSE_AFTER_ERROR_SECONDS, ClosedLoop, LoadPlan
from loadtest.clients import Answer, AnswerError
from loadtest.timeline import OK, Timeline


class ScriptedClient:
    """Answers after a fixed time; the text "bad" is refused at once."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds
        self.in_flight: set[int] = set()
        self.most_in_flight = 0
        self._number = itertools.count()

    async def send(self, text: str) -> Answer:
        if text == "bad":
            raise AnswerError("HTTP 429", "too many requests")
        number = next(self._number)
        self.in_flight.add(number)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        await asyncio.sleep(self.seconds)
        self.in_flight.remove(number)
        return Answer(sentences=1)


async def run(plan: LoadPlan, client: ScriptedClient, text: str = "good") -> Timeline:
    timeline = Timeline({})
    counts = iter([10.0, 25.0])

    async def server_tokens() -> float:
        return next(counts)

    loop = ClosedLoop(plan, client, itertools.repeat(text), timeline, lambda done, exchanges: None)
    await loop.run(server_tokens)
    return timeline


async def test_every_user_has_one_request_in_flight() -> None:
    client = ScriptedClient()
    timeline = await run(LoadPlan(users=5, warm_up_seconds=0, duration_seconds=0.1), client)
    assert client.most_in_flight == 5
    assert not client.in_flight
    assert {exchange.user for exchange in timeline.exchanges} == set(range(5))
    for user in range(5):
        own = [e for e in timeline.exchanges if e.user == user]
        assert all(before.end <= after.start for before, after in itertools.pairwise(own))


async def test_the_window_opens_after_the_warm_up_and_closes_after_the_duration() -> None:
    plan = LoadPlan(users=2, warm_up_seconds=0.1, duration_seconds=0.2)
    timeline = await run(plan, ScriptedClient())
    assert timeline.opened.time >= 0.1
    assert timeline.seconds >= 0.2
    assert (timeline.opened.server_tokens, timeline.closed.server_tokens) == (10.0, 25.0)
    assert 0 < len(timeline.measured) < len(timeline.exchanges)


async def test_enough_requests_close_the_window_early() -> None:
    plan = LoadPlan(users=3, warm_up_seconds=0.02, duration_seconds=60, requests=9)
    timeline = await run(plan, ScriptedClient())
    assert 9 <= len(timeline.measured) < 9 + 3
    assert timeline.seconds < 30


async def test_a_refused_user_pauses_and_is_counted() -> None:
    plan = LoadPlan(users=1, warm_up_seconds=0, duration_seconds=1.5 * PAUSE_AFTER_ERROR_SECONDS)
    timeline = await run(plan, ScriptedClient(), text="bad")
    assert [exchange.outcome for exchange in timeline.exchanges] == ["HTTP 429", "HTTP 429"]
    assert OK not in {exchange.outcome for exchange in timeline.measured}
