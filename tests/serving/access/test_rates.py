"""Rates over all replicas: no more than the rate, no less, and cheap refusals."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.access.key_file import KeyEntry, hash_key, new_key_entry, write_keys
from serving.access.key_ring import Key
from serving.access.rates import Rates
from serving.errors import RateExceeded
from serving.storage.opening import open_state
from serving.storage.state import State
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.serving.access.clock import Clock
from tests.serving.access.spending import spend

FEW = KeyEntry(name="few", sha256=hash_key("a"), requests_per_second=2, tokens_per_minute=60)


class Replica:
    """The rates of a replica, and its own buckets of a key."""

    def __init__(self, state: State, clock: Clock, entry: KeyEntry = FEW) -> None:
        self.key = Key(entry, clock)
        self.rates = Rates(state, lambda connection: clock(), clock)

    async def admit(self) -> None:
        await self.rates.admit(self.key)

    def charge(self, num_tokens: int) -> None:
        self.rates.charge(self.key, num_tokens)

    async def settle(self) -> None:
        """Return once the shared buckets have what was charged."""
        while self.rates._tasks:
            await asyncio.sleep(0.001)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replicas(state_place: str, clock: Clock) -> Iterator[list[Replica]]:
    states = [open_state(state_place) for _ in range(2)]
    yield [Replica(state, clock) for state in states]
    for state in states:
        state.close()


async def test_a_key_may_ask_for_no_more_than_its_rates(
    replicas: list[Replica], clock: Clock
) -> None:
    first, second = replicas
    await first.admit()
    await second.admit()
    for replica in replicas:
        with pytest.raises(RateExceeded, match="2 requests a second") as caught:
            await replica.admit()
        assert caught.value.retry_after_seconds == 0.5

    clock.now += 10
    first.charge(70)
    await first.settle()
    for replica in replicas:
        await asyncio.sleep(0)
        with pytest.raises(RateExceeded, match="60 tokens a minute") as caught:
            await replica.admit()
        assert caught.value.retry_after_seconds == 11

    clock.now += 11
    await second.admit()


async def test_requests_at_once_get_exactly_what_there_is(replicas: list[Replica]) -> None:
    asked = [replica.admit() for replica in replicas for _ in range(50)]
    ends = await asyncio.gather(*asked, return_exceptions=True)
    assert ends.count(None) == 2
    assert {type(end) for end in ends} == {type(None), RateExceeded}


async def test_refusals_do_not_ask_the_database(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    await first.admit()
    await first.admit()
    with pytest.raises(RateExceeded):
        await second.admit()
    num_questions = 0
    ask = second.rates._database.start

    def count(*arguments: object) -> object:
        nonlocal num_questions
        num_questions += 1
        return ask(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(second.rates._database, "start", count)
    for _ in range(10_000):
        with pytest.raises(RateExceeded):
            await second.admit()
    assert num_questions == 0


async def test_a_request_whose_client_leaves_stops_no_other(replicas: list[Replica]) -> None:
    first, _ = replicas
    given_up = [asyncio.create_task(first.admit()) for _ in range(2)]
    await asyncio.sleep(0)
    given_up[1].cancel()
    await asyncio.wait(given_up)
    await first.admit()


@pytest.mark.parametrize(
    ("limit", "unit", "at_once", "per_second"),
    [
        ({"requests_per_second": 20}, "requests", 20, 20),
        ({"tokens_per_minute": 1200}, "tokens", 1200, 20),
    ],
    ids=["requests", "tokens"],
)
async def test_rates_hold_over_all_processes(
    state_place: str,
    tmp_path: Path,
    limit: dict[str, float],
    unit: str,
    at_once: float,
    per_second: float,
) -> None:
    entry = new_key_entry(name="often", sha256=hash_key("key"), **limit)
    write_keys(tmp_path / "keys.json", (entry,))
    seconds = 5.0
    started = time.monotonic()

    spent = await spend(state_place, tmp_path / "keys.json", "rates", seconds)

    most = at_once + per_second * (time.monotonic() - started)
    got = sum(each[unit] for each in spent)
    assert 0.9 * (at_once + per_second * seconds) <= got <= 1.1 * most, spent


@pytest.mark.full
@NEEDS_POSTGRESQL
@pytest.mark.parametrize("is_paused", [False, True], ids=["stopped", "paused"])
async def test_without_the_database_each_replica_holds_them_alone(is_paused: bool) -> None:
    entry = new_key_entry(name="often", sha256=hash_key("key"), requests_per_second=10)

    async def ask(rates: Rates, key: Key, seconds: float) -> tuple[int, float]:
        """Return how many requests were admitted, and the longest time of one of them."""
        num_admitted, longest, end = 0, 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            started = time.monotonic()
            try:
                await rates.admit(key)
                num_admitted += 1
            except RateExceeded as error:
                await asyncio.sleep(error.retry_after_seconds)
            else:
                longest = max(longest, time.monotonic() - started)
        return num_admitted, longest

    pairs: list[tuple[Rates, Key]] = []

    async def ask_all(seconds: float) -> tuple[list[int], float, float]:
        """Return what `ask` does of each replica, the longest time, and that of all together."""
        started = time.monotonic()
        answers = await asyncio.gather(*(ask(rates, key, seconds) for rates, key in pairs))
        numbers, longest = zip(*answers, strict=True)
        return list(numbers), max(longest), time.monotonic() - started

    with running_postgresql() as server:
        url = server.create_database()
        pairs += [(Rates(open_state(url)), Key(entry, time.monotonic)) for _ in range(2)]
        together, _, elapsed = await ask_all(4.0)
        assert 20 <= sum(together) <= 1.1 * (10 + 10 * elapsed)

        server.pause() if is_paused else server.stop()
        alone, longest, elapsed = await ask_all(6.0)
        assert all(20 <= num <= 1.1 * (10 + 10 * elapsed) for num in alone), alone
        assert longest < 5
        server.resume() if is_paused else server.start()

        async with asyncio.timeout(30):
            while None in [await rates._ask(key) for rates, key in pairs]:
                await asyncio.sleep(0.1)
        # The buckets of both may be full by now.
        together, _, elapsed = await ask_all(4.0)
        assert sum(together) <= 1.1 * (20 + 10 * elapsed)
