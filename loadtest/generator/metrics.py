"""Reads the counters and histograms of a server's /metrics, so that reports can set them beside
what the clients saw.
"""

import asyncio
from itertools import count

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from loadtest.errors import ServerError
from loadtest.generator.items import Item
from loadtest.generator.sending import Sender
from loadtest.plan import Plan
from loadtest.records import OK

_TIMEOUT_SECONDS = 5.0
_KINDS = ("counter", "histogram")
_OF_THE_RUNTIME = ("python_", "process_", "ray_")


async def scrape(session: aiohttp.ClientSession) -> dict[str, float] | None:
    """Return the samples by name and labels; None where the server has no metrics."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS), session.get("metrics") as response:
            return samples(await response.text()) if response.ok else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None


def samples(text: str) -> dict[str, float]:
    """Read the text format. Raises ValueError for anything else."""
    return {
        _name(sample.name, sample.labels): float(sample.value)
        for family in text_string_to_metric_families(text)
        if family.type in _KINDS and not family.name.startswith(_OF_THE_RUNTIME)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def _name(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs else name


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
