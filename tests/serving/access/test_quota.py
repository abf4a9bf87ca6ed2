"""Quotas: what is answered is billed once, whatever happens beside it, and nothing is forgotten."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.access.quota import Quota
from serving.errors import QuotaExceeded, RateExceeded, StorageError
from serving.storage.database import Connection
from serving.storage.opening import open_state
from serving.storage.state import State
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.serving.access.spending import spend

NOW = datetime(2026, 12, 30, 12, tzinfo=UTC)


class Calendar:
    """The clock of the database, and of replicas, as a test sets it."""

    def __init__(self) -> None:
        self.now = NOW

    def of_database(self, _: Connection) -> float:
        return self.now.timestamp()

    def of_replica(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    limits = {"requests_per_minute": 3, "characters_per_month": 100}
    entries = (
        KeyEntry(name="free", sha256=hash_key("a")),
        KeyEntry(name="many", sha256=hash_key("b"), characters_per_month=100),
        KeyEntry(name="few", sha256=hash_key("c"), **limits),
        KeyEntry(name="slow", sha256=hash_key("d"), requests_per_minute=0.5),
        KeyEntry(name="paced", sha256=hash_key("e"), requests_per_minute=60),
    )
    write_keys(tmp_path / "keys.json", entries)
    return KeyRing(tmp_path / "keys.json", {})


@pytest.fixture
def quota(state: State, ring: KeyRing, calendar: Calendar) -> Quota:
    return replica(state, ring, calendar)


@pytest.fixture
def other_quota(state_place: str, ring: KeyRing, calendar: Calendar) -> Iterator[Quota]:
    """Of another replica."""
    state = open_state(state_place)
    yield replica(state, ring, calendar)
    state.close()


def replica(state: State, ring: KeyRing, calendar: Calendar) -> Quota:
    return Quota(state, ring, calendar.of_database, calendar.of_replica)


async def ask(quota: Quota, key: str, characters: int) -> None:
    async with quota.reserve(key, characters):
        await asyncio.sleep(0)


async def used(quota: Quota, key: str) -> int:
    return (await quota.usage(key)).characters


async def test_what_fails_or_is_given_up_is_not_billed(quota: Quota) -> None:
    await ask(quota, "many", 40)
    with pytest.raises(ValueError):
        async with quota.reserve("many", 60):
            raise ValueError
    is_held = asyncio.Event()

    async def wait() -> None:
        async with quota.reserve("many", 60):
            is_held.set()
            await asyncio.sleep(60)

    given_up = asyncio.create_task(wait())
    await is_held.wait()
    given_up.cancel()
    await asyncio.wait([given_up])

    assert await used(quota, "many") == 40
    await ask(quota, "many", 60)
    with pytest.raises(QuotaExceeded, match="key many may use no more than 100 characters a month"):
        await ask(quota, "many", 1)
    assert await used(quota, "many") == 100


async def test_requests_at_once_do_not_exceed_it_together(quota: Quota, other_quota: Quota) -> None:
    """They come to two replicas."""
    asked = [ask(each, "many", 7) for each in (quota, other_quota) for _ in range(20)]
    ends = await asyncio.gather(*asked, return_exceptions=True)

    assert await used(quota, "many") == 7 * ends.count(None) <= 100
    assert {type(end) for end in ends} == {type(None), QuotaExceeded}, ends


async def test_a_month_ends(quota: Quota, calendar: Calendar) -> None:
    await ask(quota, "many", 100)
    usage = await quota.usage("many")
    assert (usage.characters, usage.limit) == (100, 100)
    assert (usage.start, usage.end) == (
        datetime(2026, 12, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(QuotaExceeded) as refused:
        await ask(quota, "many", 1)
    assert refused.value.retry_after_seconds == timedelta(days=1, hours=12).total_seconds()

    calendar.now = datetime(2027, 1, 1, tzinfo=UTC)

    assert await used(quota, "many") == 0
    await ask(quota, "many", 100)


async def test_counts_and_rates_outlive_the_server(
    quota: Quota, other_quota: Quota, calendar: Calendar
) -> None:
    for _ in range(3):
        await ask(quota, "few", 10)
    again = other_quota
    assert await used(again, "few") == 30
    with pytest.raises(RateExceeded, match="3 requests a minute") as refused:
        await ask(again, "few", 10)
    assert refused.value.retry_after_seconds == pytest.approx(20)

    calendar.now += timedelta(seconds=20)
    await ask(again, "few", 10)
    with pytest.raises(RateExceeded):
        await ask(again, "few", 10)


async def test_less_than_one_request_a_minute(quota: Quota, calendar: Calendar) -> None:
    await ask(quota, "slow", 1)
    calendar.now += timedelta(seconds=119)
    with pytest.raises(RateExceeded) as refused:
        await ask(quota, "slow", 1)
    assert refused.value.retry_after_seconds == pytest.approx(1)
    calendar.now += timedelta(seconds=1)
    await ask(quota, "slow", 1)


async def test_what_a_killed_replica_held_is_free_after_ten_minutes(
    quota: Quota, other_quota: Quota, calendar: Calendar
) -> None:
    hold = other_quota.reserve("many", 100)
    await hold.__aenter__()  # and nobody leaves it
    with pytest.raises(QuotaExceeded):
        await ask(quota, "many", 1)
    calendar.now += timedelta(minutes=10, seconds=1)
    await ask(quota, "many", 1)
    await hold.__aexit__(None, None, None)


async def test_without_a_limit_it_counts_and_without_keys_it_does_not(
    quota: Quota, tmp_path: Path
) -> None:
    await ask(quota, "free", 10**9)
    assert await used(quota, "free") == 10**9

    keyless = Quota(open_state(tmp_path / "none"), None)
    await ask(keyless, "", 10)
    assert (await keyless.usage("")).characters == 0
    assert not (tmp_path / "none").exists()


async def test_processes_use_exactly_what_there_is(state_place: str, tmp_path: Path) -> None:
    limit = 3_000
    entry = KeyEntry(name="many", sha256=hash_key("b"), characters_per_month=limit)
    write_keys(tmp_path / "keys.json", (entry,))

    spent = await spend(state_place, tmp_path / "keys.json", "quota")

    assert all(spent) and sum(each["characters"] for each in spent) <= limit
    quota = Quota(open_state(state_place), KeyRing(tmp_path / "keys.json", {}))
    num_used = await used(quota, "many")
    assert num_used == sum(each["characters"] for each in spent)
    with pytest.raises(QuotaExceeded):
        await ask(quota, "many", limit - num_used + 1)
    if num_used < limit:
        await ask(quota, "many", limit - num_used)


async def test_processes_share_the_requests_of_a_minute(
    state_place: str, ring: KeyRing, tmp_path: Path
) -> None:
    """60 may come at once, one a second after that; refusals are many times as fast."""
    started = time.monotonic()
    spent = await spend(state_place, tmp_path / "keys.json", "pace")
    seconds = time.monotonic() - started

    num_admitted = sum(each["admitted"] for each in spent)
    assert 63 <= num_admitted <= 61 + seconds, spent
    assert sum(each["refused"] for each in spent) > 50 * num_admitted


async def test_a_request_that_is_given_up_while_it_waits_for_the_database_reserves_nothing(
    quota: Quota,
) -> None:
    await ask(quota, "many", 1)  # the database is open
    for _ in range(20):
        given_up = asyncio.create_task(ask(quota, "many", 90))
        await asyncio.sleep(0.0005)
        given_up.cancel()
        await asyncio.wait([given_up])
    async with asyncio.timeout(5):
        while True:  # it is released a moment later
            try:
                async with quota.reserve("many", 99 - await used(quota, "many")):
                    return
            except QuotaExceeded:
                await asyncio.sleep(0.01)


async def test_a_request_that_is_given_up_in_the_moment_of_its_decision_reserves_nothing(
    quota: Quota, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = quota._decide

    async def decide_and_give_up(entry: KeyEntry, requests: Any) -> None:
        await decide(entry, requests)
        given_up.cancel()

    with monkeypatch.context() as patch:
        patch.setattr(quota, "_decide", decide_and_give_up)
        given_up = asyncio.create_task(ask(quota, "many", 90))
        await asyncio.wait([given_up])
    assert given_up.cancelled()
    assert await used(quota, "many") == 0
    await ask(quota, "many", 100)


async def test_a_request_that_takes_long_keeps_its_reservation(
    quota: Quota, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.access.quota._RENEW_SECONDS", 0.01)
    async with quota.reserve("many", 100):
        calendar.now += timedelta(minutes=9)
        await asyncio.sleep(0.5)
        calendar.now += timedelta(minutes=9)
        with pytest.raises(QuotaExceeded):
            await ask(quota, "many", 1)


async def test_a_database_of_the_version_before_goes_on(
    tmp_path: Path, ring: KeyRing, calendar: Calendar
) -> None:
    database = sqlite3.connect(tmp_path / "quota.sqlite3")
    database.executescript("""
CREATE TABLE IF NOT EXISTS used (
    key TEXT, month TEXT, characters INTEGER NOT NULL, PRIMARY KEY (key, month)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, characters INTEGER NOT NULL, expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pace (key TEXT PRIMARY KEY, booked_until REAL NOT NULL)
    STRICT, WITHOUT ROWID;
INSERT INTO used VALUES ('many', '2026-12', 60);
""")
    held = ("an id", "many", 30, NOW.timestamp() + 60)
    database.execute("INSERT INTO held VALUES (?, ?, ?, ?)", held)
    database.execute("INSERT INTO pace VALUES ('slow', ?)", (NOW.timestamp() + 120,))
    database.commit()
    database.close()
    quota = replica(open_state(tmp_path), ring, calendar)

    assert await used(quota, "many") == 60
    with pytest.raises(QuotaExceeded):
        await ask(quota, "many", 11)
    await ask(quota, "many", 10)
    with pytest.raises(RateExceeded):
        await ask(quota, "slow", 1)


@NEEDS_POSTGRESQL
@pytest.mark.parametrize("is_paused", [False, True], ids=["stopped", "paused"])
async def test_without_the_database_exact_limits_refuse_and_other_keys_go_on(
    ring: KeyRing, is_paused: bool
) -> None:
    with running_postgresql() as server:
        quota = Quota(open_state(server.create_database()), ring)
        await ask(quota, "free", 1)
        assert await used(quota, "free") == 1
        async with quota.reserve("many", 40):
            server.pause() if is_paused else server.stop()
            loop = asyncio.get_running_loop()
            started = loop.time()
            for key in ("many", "few", "slow"):
                with pytest.raises(StorageError):
                    await ask(quota, key, 1)
            assert loop.time() - started < 3 * 3.5
            started = loop.time()
            for _ in range(100):
                await ask(quota, "free", 1)
            assert loop.time() - started < 1
            server.resume() if is_paused else server.start()

        async with asyncio.timeout(30):  # it is billed, and what was used meanwhile
            while True:
                try:
                    if (await used(quota, "free"), await used(quota, "many")) == (101, 40):
                        break
                except StorageError:
                    await asyncio.sleep(0.1)
        await ask(quota, "many", 60)
        with pytest.raises(QuotaExceeded):
            await ask(quota, "many", 1)
