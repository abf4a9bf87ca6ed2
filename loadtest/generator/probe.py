"""Asks a server for each sort of answer before a run, so that what cannot be is not begun."""

from itertools import count

import aiohttp

from loadtest.errors import ServerError
from loadtest.generator.sending import Sender
from loadtest.plan import Plan
from loadtest.records import OK
from loadtest.work.items import Item

_ID = -1  # of no request of the run
_TEXT = "Is anybody there?"


async def probe(plan: Plan, session: aiohttp.ClientSession) -> None:
    """Raise ServerError where the server has no usable answer for something that the run asks."""
    times = count()
    sender = Sender(plan, session, lambda: float(next(times)))
    for target in plan.work.targets:
        for kind in target.mix:
            item = Item(_ID, kind, target.protocol, target.model, _TEXT)
            record = await sender.send(item)
            if record.outcome != OK:
                raise ServerError(_message(plan.url, item, record.outcome, record.detail))


def _message(url: str, item: Item, outcome: str, detail: str) -> str:
    asked = f"{item.protocol} ({item.model}, {item.kind})" if item.model else item.protocol
    return f"{url} gave no answer to {asked} to start with: {outcome}: {detail}".rstrip(": ")
