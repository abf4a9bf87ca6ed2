"""Keys get equal parts of all replicas, wherever their requests are."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from serving.access.fair_use import FairUse
from serving.storage.opening import open_state
from serving.storage.state import State
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.serving.engine.scheduling.pods import Client, Pod, shares_of_work


class CountingEngine:
    """Keys receive what a test says."""

    def __init__(self) -> None:
        self.work: Counter[str] = Counter()
        self.charged: Counter[str] = Counter()

    def taken_work(self) -> Counter[str]:
        return Counter(self.work)

    def charge(self, account: str, work: int) -> None:
        self.charged[account] += work


@pytest.mark.parametrize(
    ("first", "second", "num_pods", "part"),
    [
        ((30, 1), (60, 1), 3, 1 / 2),
        ((20, 10), (20, 100), 3, 1 / 2),
        ((4, 300), (12, 300), 3, 1 / 2),
        ((2, 300), (8, 300), 2, 1 / 2),
        ((1, 300), (60, 1), 2, 1 / 2),
        ((1, 300), (6, 300), 3, 1 / 3),  # its only request is in one of three pods
    ],
)
def test_keys_get_equal_parts_of_all_pods(
    state: State,
    first: tuple[int, int],
    second: tuple[int, int],
    num_pods: int,
    part: float,
) -> None:
    """Connections, and sentences of each request."""
    uses: list[FairUse] = []

    def report(pods: Sequence[Pod]) -> None:
        uses[:] = uses or [FairUse(state, lambda pod=pod: {"toy": pod}) for pod in pods]  # type: ignore[misc]
        for use in uses:
            runner.run(use.report())

    with asyncio.Runner() as runner:
        clients = [Client("first", *first), Client("second", *second)]
        shares = shares_of_work(clients, num_pods, 200.0, report)

    assert shares["first"] == pytest.approx(part, rel=0.1)


async def test_reports_are_charged_once_and_only_to_the_same_model(state: State) -> None:
    engines = [{"a": CountingEngine(), "b": CountingEngine()} for _ in range(3)]
    uses = [FairUse(state, lambda served=served: served) for served in engines]  # type: ignore[misc]
    for number in range(1, 5):
        for served in engines:
            served["a"].work["ann"] += 10 * number
            served["a"].work[""] += 10  # requests without a key
        for use in uses:
            await use.report()

    totals = [served["a"].charged for served in engines]
    assert all({*charged} == {"ann"} for charged in totals), totals
    # What a key receives before a replica knows of it is not charged there: 20 or 50 of each other
    # one. Nor is yet what others report after the last answer.
    assert [each["ann"] for each in totals] == [30 + 30, 70 + 30, 70 + 70], totals
    assert not any(served["b"].charged for served in engines)


@pytest.mark.full
@NEEDS_POSTGRESQL
@pytest.mark.parametrize("is_paused", [False, True], ids=["stopped", "paused"])
async def test_what_is_received_without_the_database_is_not_charged_later(
    monkeypatch: pytest.MonkeyPatch, is_paused: bool
) -> None:
    monkeypatch.setattr("serving.access.fair_use._REPORT_SECONDS", 0.1)
    with running_postgresql() as server:
        url = server.create_database()
        engines = [CountingEngine() for _ in range(2)]
        uses = [
            FairUse(open_state(url), lambda engine=engine: {"toy": engine})  # type: ignore[misc]
            for engine in engines
        ]

        async def receive(work: int, seconds: float) -> None:
            end = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end:
                for engine in engines:
                    engine.work["ann"] += work
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(use.run()) for use in uses]
        await receive(1, 3.0)
        assert all(engine.charged["ann"] > 10 for engine in engines)

        server.pause() if is_paused else server.stop()
        await receive(0, 4.0)
        before = [engine.charged["ann"] for engine in engines]
        await receive(1_000, 2.0)
        await receive(0, 3.0)  # a report that had begun before has been given up
        assert [engine.charged["ann"] for engine in engines] == before
        server.resume() if is_paused else server.start()

        async with asyncio.timeout(30):
            while not all(
                engine.charged["ann"] > charged
                for engine, charged in zip(engines, before, strict=True)
            ):
                await receive(1, 0.2)
        assert all(
            engine.charged["ann"] - charged < 1_000
            for engine, charged in zip(engines, before, strict=True)
        )
        for task in tasks:
            assert not task.done()
            task.cancel()
