"""Quotas: what is answered is billed once, whatever happens beside it, and nothing is forgotten."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.access.quota import Quota
from serving.errors import QuotaExceeded, RateExceeded

NOW = datetime(2026, 12, 30, 12, tzinfo=UTC)


class Calendar:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


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
    )
    write_keys(tmp_path / "keys.json", entries)
    return KeyRing(tmp_path / "keys.json", {})


@pytest.fixture
def quota(tmp_path: Path, ring: KeyRing, calendar: Calendar) -> Quota:
    return Quota(tmp_path / "state", ring, calendar)


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


async def test_requests_at_once_do_not_exceed_it_together(
    quota: Quota, tmp_path: Path, ring: KeyRing, calendar: Calendar
) -> None:
    """They come to two replicas."""
    other = Quota(tmp_path / "state", ring, calendar)
    asked = [ask(each, "many", 7) for each in (quota, other) for _ in range(20)]
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
    quota: Quota, tmp_path: Path, ring: KeyRing, calendar: Calendar
) -> None:
    for _ in range(3):
        await ask(quota, "few", 10)
    again = Quota(tmp_path / "state", ring, calendar)
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


async def test_what_a_killed_replica_held_is_free_after_an_hour(
    quota: Quota, tmp_path: Path, ring: KeyRing, calendar: Calendar
) -> None:
    killed = Quota(tmp_path / "state", ring, calendar)
    hold = killed.reserve("many", 100)
    await hold.__aenter__()  # and nobody leaves it
    with pytest.raises(QuotaExceeded):
        await ask(quota, "many", 1)
    calendar.now += timedelta(hours=1, seconds=1)
    await ask(quota, "many", 1)


async def test_without_a_limit_it_counts_and_without_keys_it_does_not(
    quota: Quota, tmp_path: Path
) -> None:
    await ask(quota, "free", 10**9)
    assert await used(quota, "free") == 10**9

    keyless = Quota(tmp_path / "none", None)
    await ask(keyless, "", 10)
    assert (await keyless.usage("")).characters == 0
    assert not (tmp_path / "none").exists()
