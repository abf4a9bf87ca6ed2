"""Replicas in processes of their own, whose keys ask for as much as they get."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

from serving.access.key_file import KeyEntry
from serving.access.key_ring import Key, KeyRing
from serving.access.quota import Quota
from serving.access.rates import Rates
from serving.errors import QuotaExceeded, RateExceeded
from serving.storage.opening import open_state

_NUM_CLIENTS = 4
_TOKENS_OF_A_REQUEST = 5


async def spend_quota(quota: Quota, random_numbers: random.Random) -> Counter[str]:
    """Ask for characters until not even one is left, and return what was answered. Every fifth
    request fails. A refusal may be of what others only reserve: several in a row are believed.
    """
    spent: Counter[str] = Counter()
    num_refused = 0
    while num_refused < 5:
        characters = random_numbers.randint(1, 40 if not num_refused else 1)
        fails = random_numbers.random() < 0.2
        try:
            async with quota.reserve("many", characters):
                await asyncio.sleep(random_numbers.random() / 500)
                if fails:
                    raise ConnectionError
        except ConnectionError:
            continue
        except QuotaExceeded:
            num_refused += 1
            await asyncio.sleep(0.02)
        else:
            spent["characters"] += characters
            num_refused = 0
    return spent


async def spend_requests(quota: Quota, seconds: float) -> Counter[str]:
    """Ask as often as there is an answer, and count both."""
    spent: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            async with quota.reserve("paced", 1):
                spent["admitted"] += 1
        except RateExceeded:
            spent["refused"] += 1
        await asyncio.sleep(0)
    return spent


async def spend_rate(rates: Rates, key: Key, seconds: float) -> Counter[str]:
    """Ask again as soon as a refusal says, and charge tokens for each answer."""
    spent: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await rates.admit(key)
        except RateExceeded as error:
            await asyncio.sleep(min(error.retry_after_seconds, end - time.monotonic()))
            continue
        rates.charge(key, _TOKENS_OF_A_REQUEST)
        spent["requests"] += 1
        spent["tokens"] += _TOKENS_OF_A_REQUEST
        await asyncio.sleep(0.001)
    return spent


async def main(place: str, keys: Path, kind: str, seed: int, seconds: float) -> None:
    state, ring = open_state(place), KeyRing(keys, {})
    quota, rates = Quota(state, ring), Rates(state)
    await quota.usage("many")
    await rates.admit(
        Key(KeyEntry(name="first", sha256="0" * 64, requests_per_second=9), time.monotonic)
    )
    numbers = random.Random(seed)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    def client() -> Coroutine[None, None, Counter[str]]:
        if kind == "quota":
            return spend_quota(quota, numbers)
        if kind == "pace":
            return spend_requests(quota, seconds)
        key = ring.find("key")
        assert key is not None
        return spend_rate(rates, key, seconds)

    spent = await asyncio.gather(*(client() for _ in range(_NUM_CLIENTS)))
    print(json.dumps(sum(spent, Counter())), flush=True)


async def spend(place: str, keys: Path, kind: str, seconds: float = 4.0) -> list[dict[str, int]]:
    """Return what three replicas got, which begin to ask at once.

    kind: "quota", "pace" (requests a minute) or "rates".
    """
    command = (sys.executable, "-m", "tests.serving.access.spending", place, str(keys), kind)
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(
            *command, str(seed), str(seconds), stdin=pipe, stdout=pipe
        )
        for seed in range(3)
    ]
    for process in processes:
        assert process.stdout and await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    return [json.loads(output) for output, _ in outputs]


if __name__ == "__main__":
    place, keys, kind, seed, seconds = sys.argv[1:]
    asyncio.run(main(place, Path(keys), kind, int(seed), float(seconds)))
