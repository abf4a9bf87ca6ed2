"""A replica in a process of its own, whose keys ask for as much as they get."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from serving.access.key_ring import KeyRing
from serving.access.quota import Quota
from serving.errors import QuotaExceeded, RateExceeded
from serving.storage.opening import open_state

_NUM_CLIENTS = 4


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


async def main(place: str, keys: Path, kind: str, seed: int) -> None:
    quota = Quota(open_state(place), KeyRing(keys, {}))
    await quota.usage("many")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    numbers = random.Random(seed)
    clients = [
        spend_quota(quota, numbers) if kind == "characters" else spend_requests(quota, 4.0)
        for _ in range(_NUM_CLIENTS)
    ]
    print(json.dumps(sum(await asyncio.gather(*clients), Counter())), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
