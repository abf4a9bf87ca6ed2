"""Soak a real server: mixed clients, and a kill every two minutes.

`make soak` takes half an hour and writes one page; `--help` has its options.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import click
from tqdm import tqdm

from loadtest.reporting.document import as_text
from loadtest.reporting.page import as_page
from tests.encoders import encoder_bundle
from tests.served import int8_bundle, served_with_console
from tests.serving.deployments.parts import kill, pids_of
from tests.soak.clients import Clients, Record
from tests.soak.measures import Sample, sample
from tests.soak.report import Soak, document

_SAMPLE_SECONDS = 5.0
_LAST_SECONDS = 150.0  # in which what has begun must end
_KILLED = ("replica", "haproxy", "replica", "controller")  # in turns


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long clients come.")
@click.option("--clients", default=12, show_default=True, help="Number of clients at once.")
@click.option("--kill-every", default=120.0, show_default=True, help="Seconds between kills.")
@click.option("--seed", default=0, show_default=True, help="Decides what clients ask for.")
@click.option("--output", "-o", type=click.Path(path_type=Path), default=Path("build/soak.html"))
def main(minutes: float, clients: int, kill_every: float, seed: int, output: Path) -> None:
    """Soak a server and write a page. Fails if anything was wrong, or memory has grown."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        bundles = [
            int8_bundle("transformer-en-fr", "transformer", folder),
            int8_bundle("llama-en", "llama", folder),
            encoder_bundle("embedder", folder),
        ]
        config = {"state": str(folder / "state"), "groups": [{"bundles": bundles}]}
        pids: list[int] = []
        with served_with_console(config, folder, pids) as (url, _):
            soak = asyncio.run(_soak(url, pids[0], 60 * minutes, clients, kill_every, seed))
    made = document(soak)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(as_page(made), encoding="utf-8")
    click.echo(as_text(made))
    click.echo(f"\nwrote {output}")
    sys.exit(0 if soak.holds else 1)


async def _soak(
    url: str, pid: int, seconds: float, num_clients: int, kill_every: float, seed: int
) -> Soak:
    record, samples, kills = Record(), list[Sample](), list[tuple[float, str]]()
    started = time.monotonic()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [Clients(url, session, record, seed + number) for number in range(num_clients)]
        tasks = [asyncio.create_task(each.run(started + seconds)) for each in clients]
        watching = asyncio.create_task(_watch(pid, started, samples, seconds))
        killing = asyncio.create_task(_kill(pid, started, kill_every, seconds, kills))
        done, late = await asyncio.wait(tasks, timeout=seconds + _LAST_SECONDS)
        for task in (*late, watching, killing):
            task.cancel()
        await asyncio.gather(*late, watching, killing, return_exceptions=True)
        for task in done:
            task.result()
    return Soak(record, samples, kills, seconds, len(late))


async def _watch(pid: int, started: float, samples: list[Sample], seconds: float) -> None:
    with tqdm(total=round(seconds), unit=" s") as bar:
        while True:
            passed = time.monotonic() - started
            samples.append(await asyncio.to_thread(sample, pid, passed))
            bar.update(min(round(passed), round(seconds)) - bar.n)
            bar.set_postfix(MiB=round(samples[-1].pss_mib))
            await asyncio.sleep(_SAMPLE_SECONDS)


async def _kill(
    pid: int, started: float, every: float, seconds: float, kills: list[tuple[float, str]]
) -> None:
    number = 0
    while every and (number + 1) * every < seconds:
        await asyncio.sleep(started + (number + 1) * every - time.monotonic())
        part = _KILLED[number % len(_KILLED)]
        if pids_of(pid, part):
            kill(pid, part)
            kills.append((time.monotonic() - started, part))
        number += 1


if __name__ == "__main__":
    main()
