"""Reads the counters and histograms of a server's /metrics, so that reports can set them beside
what the clients saw.
"""

import asyncio

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

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
