"""Hands events to those who wait for them, each on the event loop that it came from."""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from serving.request import Event, GenerationRequest, is_final


class Ticket:
    """Holds what one caller waits for: the events of its requests, one by one or all together."""

    def __init__(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> None:
        self.requests = requests
        self.is_streamed = is_streamed
        self.num_open = len(requests)
        self.events: deque[Event] = deque()
        self.loop = asyncio.get_running_loop()
        self.has_news = asyncio.Event()

    async def next_events(self) -> list[Event]:
        await self.has_news.wait()
        self.has_news.clear()
        return [self.events.popleft() for _ in range(len(self.events))]


class Tickets:
    """Knows whose request is whose. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, Ticket] = {}
        self._lock = threading.Lock()

    def open(self, ticket: Ticket, submit: Callable[[], None]) -> None:
        """Submit a ticket's requests; no event of theirs is delivered before they are known."""
        with self._lock:
            submit()
            self._by_id |= {request.request_id: ticket for request in ticket.requests}

    def open_ids(self, ticket: Ticket) -> list[str]:
        """List the requests of a ticket that have not ended."""
        ids = (request.request_id for request in ticket.requests)
        return [request_id for request_id in ids if self._by_id.get(request_id) is ticket]

    def all_ids(self) -> list[str]:
        return list(self._by_id)

    def deliver(self, events: Iterable[Event]) -> None:
        """Hand out events, with one wake-up of a loop at most."""
        woken: dict[Ticket, None] = {}
        with self._lock:
            for event in events:
                ticket = self._by_id[event.request_id]
                ticket.events.append(event)
                if is_final(event):
                    del self._by_id[event.request_id]
                    ticket.num_open -= 1
                if ticket.is_streamed or not ticket.num_open:
                    woken[ticket] = None
        _wake(woken)


def _wake(tickets: Iterable[Ticket]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        by_loop[ticket.loop].append(ticket)
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_news, group)


def _set_news(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.has_news.set()
