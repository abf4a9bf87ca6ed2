"""Batches over a fake of what answers: killed, expired, cancelled, and nothing done twice."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.errors import NoSuchObject, RequestError
from serving.jobs import batches as module
from serving.jobs import table
from serving.jobs.batch_lines import problems_of
from serving.jobs.batches import Batch, BatchData, Batches, BatchRequest
from serving.jobs.queue import JobQueue
from serving.jobs.table import OPEN, JobState
from serving.storage.state import State

URL = "/v1/completions"


def line(name: str, **changes: Any) -> str:
    body = {"model": "m", "prompt": name}
    return json.dumps({"custom_id": name, "method": "POST", "url": URL, "body": body} | changes)


def jsonl(number: int) -> io.BytesIO:
    return io.BytesIO("\n".join(line(f"line {n}") for n in range(number)).encode())


async def answer(asked: BatchRequest) -> tuple[int, Any]:
    await asyncio.sleep(0)
    return (400 if asked.body["prompt"] == "line 3" else 200), {"said": asked.body["prompt"]}


async def created(batches: Batches, number: int, owner: str = "ann") -> Batch:
    file = await batches.add_file(owner, "in.jsonl", jsonl(number))
    return await batches.create(owner, URL, file.id, {})


async def until(batches: Batches, batch: Batch, holds: Callable[[Batch], bool]) -> Any:
    for _ in range(1000):
        found = await batches.batch(batch.owner, batch.id)
        if holds(found):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def results(batches: Batches, owner: str, file_id: str | None) -> list[Any]:
    assert file_id is not None
    with await batches.open_file(owner, file_id) as file:
        return [json.loads(text) for text in file]


def has_ended(batch: Batch) -> bool:
    return batch.state not in OPEN


async def test_from_its_file_to_its_results(state: State) -> None:
    batches = Batches(JobQueue(state), answer)
    async with batches._queue.run_workers(batches):
        ended = await until(batches, await created(batches, 40), has_ended)
    output = await results(batches, "ann", ended.data.output_file)
    [failed] = await results(batches, "ann", ended.data.error_file)

    assert ended.state is JobState.COMPLETED
    assert list(ended.times) == ["in_progress", "finalizing", "completed"]
    assert (ended.data.num_lines, ended.num_results, ended.num_errors) == (40, 40, 1)
    assert [each["custom_id"] for each in output] == [f"line {n}" for n in range(40) if n != 3]
    assert all(each["response"]["body"]["said"] == each["custom_id"] for each in output)
    assert failed["custom_id"] == "line 3" and failed["response"]["status_code"] == 400


KILLED = """
import asyncio, sys
from serving.jobs.batches import Batches
from serving.jobs.queue import JobQueue
from serving.storage.opening import open_state
from tests.serving.jobs.test_batches import created

async def run(asked):
    with open(sys.argv[2], "a") as log:
        log.write(asked.body["prompt"] + "\\n")
    await asyncio.sleep(0.05)
    return 200, {}

async def main():
    batches = Batches(JobQueue(open_state(sys.argv[1])), run)
    async with batches._queue.run_workers(batches):
        print((await created(batches, 400)).id, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_kill_9_loses_nothing_and_does_nothing_twice(
    state: State, state_place: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, state_place, str(log)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    batch_id = process.stdout.readline().strip()
    while not log.exists() or len(log.read_text().splitlines()) < 100:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    begun = log.read_text().splitlines()
    again: list[str] = []

    async def run(asked: BatchRequest) -> tuple[int, Any]:
        again.append(asked.body["prompt"])
        return 200, {}

    batches = Batches(JobQueue(state), run)
    kept = (await batches.batch("ann", batch_id)).num_results
    await let_leases_run_out(batches)
    async with batches._queue.run_workers(batches):
        ended = await until(batches, await batches.batch("ann", batch_id), has_ended)
    output = await results(batches, "ann", ended.data.output_file)

    assert ended.state is JobState.COMPLETED and 0 < kept < 400
    assert [each["custom_id"] for each in output] == [f"line {n}" for n in range(400)]
    assert len(again) == 400 - kept, "what has a result is not asked again"
    assert len({*begun} & {*again}) <= 16, "only what was in progress is"


async def let_leases_run_out(batches: Batches) -> None:
    await batches._database.run(
        lambda connection: connection.execute("UPDATE jobs SET leased_until = 0")
    )


async def test_cancelled_with_what_is_done(state: State) -> None:
    gate = asyncio.Event()

    async def run(asked: BatchRequest) -> tuple[int, Any]:
        if asked.body["prompt"] != "line 0":
            await gate.wait()
        return 200, {}

    batches = Batches(JobQueue(state), run)
    async with batches._queue.run_workers(batches):
        batch = await created(batches, 3)
        await until(batches, batch, lambda found: found.num_results == 1)
        cancelling = await batches.cancel("ann", batch.id)
        ended = await until(batches, batch, has_ended)

    assert (cancelling.state, ended.state) == (JobState.CANCELLING, JobState.CANCELLED)
    assert len(await results(batches, "ann", ended.data.output_file)) == 1
    with pytest.raises(RequestError, match="cannot be cancelled: it is completed"):
        async with batches._queue.run_workers(batches):
            other = await created(batches, 1)
            gate.set()
            await until(batches, other, has_ended)
            await batches.cancel("ann", other.id)


async def test_expired(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW_SECONDS", -1)

    async def run(asked: BatchRequest) -> tuple[int, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    batches = Batches(JobQueue(state), run)
    async with batches._queue.run_workers(batches):
        ended = await until(batches, await created(batches, 2), has_ended)
    errors = await results(batches, "ann", ended.data.error_file)

    assert ended.state is JobState.EXPIRED and ended.data.output_file is None
    assert {each["error"]["code"] for each in errors} == {"batch_expired"} and len(errors) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no lines"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "must be an object with"),
        (line("a", more=1), "must be an object with"),
        (line("a") + "\n\n" + line("a"), "no other line has"),
        (line("a", custom_id=1), "no other line has"),
        (line("a", method="GET"), "must be POST"),
        (line("a", url="/v1/other"), "endpoint"),
        (line("a", body=[]), "body: must be an object"),
    ],
)
def test_what_is_wrong_with_a_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    [problem], _ = problems_of(path, URL)

    assert message in problem["message"]
    assert problem["line"] == (None if not text else text.count("\n") + 1)


async def test_a_file_that_is_wrong_fails_its_batch(state: State) -> None:
    batches = Batches(JobQueue(state), answer)
    async with batches._queue.run_workers(batches):
        file = await batches.add_file("", "in.jsonl", io.BytesIO(b"\xff\x00\n{}"))
        ended = await until(batches, await batches.create("", URL, file.id, {}), has_ended)

    assert ended.state is JobState.FAILED and [each["line"] for each in ended.data.problems] == [
        1,
        2,
    ]


async def test_a_file_that_is_gone_fails_its_batch_and_holds_nobody_up(state: State) -> None:
    batches = Batches(JobQueue(state), answer)
    lost, other = await created(batches, 2), await created(batches, 2)
    batches.files.remove(lost.data.input_file)
    async with batches._queue.run_workers(batches):
        failed = await until(batches, lost, has_ended)
        ended = await until(batches, other, has_ended)

    assert (failed.state, ended.state) == (JobState.FAILED, JobState.COMPLETED)
    assert [each["code"] for each in failed.data.problems] == ["file_not_found"]


async def test_who_has_lost_a_batch_writes_no_results_of_it(state: State) -> None:
    """Its lease ran out while it answered the last line, and another worker has the batch now."""

    async def run(asked: BatchRequest) -> tuple[int, Any]:
        if asked.body["prompt"] == "line 1":
            batch = await batches.batch("ann", asked.id.rpartition("-")[0])
            await until(batches, batch, lambda found: found.num_results == 1)
            await let_leases_run_out(batches)
            await batches._database.run(table.claim, BatchData, "another", 60.0)
        return 200, {}

    batches = Batches(JobQueue(state), run)
    async with batches._queue.run_workers(batches):
        batch = await created(batches, 2)
        await until(batches, batch, lambda found: found.num_results == 1)
        await asyncio.sleep(0.5)
        left = await batches.batch("ann", batch.id)

    assert (left.state, left.num_results) == (JobState.IN_PROGRESS, 1)
    assert [batches.files.exists(f"file-{batch.id}-{name}") for name in ("output", "error")] == [
        False,
        False,
    ]


async def test_others_do_not_learn_of_it(state: State) -> None:
    batches = Batches(JobQueue(state), answer)
    batch = await created(batches, 1)

    for asking in (
        batches.file("bob", batch.data.input_file),
        batches.open_file("bob", batch.data.input_file),
        batches.delete_file("bob", batch.data.input_file),
        batches.create("bob", URL, batch.data.input_file, {}),
        batches.batch("bob", batch.id),
        batches.cancel("bob", batch.id),
    ):
        with pytest.raises(NoSuchObject):
            await asking
    assert await batches.files_of("bob") == [] and await batches.batches_of("bob") == []
    with pytest.raises(RequestError, match="a batch reads it"):
        await batches.delete_file("ann", batch.data.input_file)
    assert batches.files.exists(batch.data.input_file)


@pytest.mark.parametrize("num_lines", [6_000, pytest.param(50_000, marks=pytest.mark.full)])
async def test_a_large_batch_is_not_in_memory_while_it_ends(
    state: State, monkeypatch: pytest.MonkeyPatch, num_lines: int
) -> None:
    """Half of its lines have answers of 4 KB, the others expire."""
    monkeypatch.setattr(module, "_WINDOW_SECONDS", 0)

    async def run(_: BatchRequest) -> tuple[int, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    batches = Batches(JobQueue(state), run)
    batch = await created(batches, num_lines)
    await batches._database.run(table.claim, BatchData, "first", 60.0)
    for first in range(1, num_lines // 2 + 1, 100):
        texts = {number: f"{number}" + "x" * 4_000 for number in range(first, first + 100)}
        await batches._database.run(table.save_results, batch.id, "first", 60.0, texts)
    await let_leases_run_out(batches)

    tracemalloc.start()
    assert await batches._queue._run_next(batches)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    ended = await batches.batch("ann", batch.id)
    assert ended.data.output_file is not None and ended.data.error_file is not None
    output, errors = [
        await batches.file("ann", file_id)
        for file_id in (ended.data.output_file, ended.data.error_file)
    ]
    print(f"{most_bytes / 2**20:.1f} MiB for a result of {output.num_bytes / 2**20:.1f} MiB")
    assert (ended.state, ended.num_results) == (JobState.EXPIRED, num_lines)
    assert output.num_bytes > 4_000 * num_lines // 2
    # Numbers of lines and the ids by which lines are checked take 250 bytes each.
    assert most_bytes < 5 * 2**20 + 400 * num_lines
    with await batches.open_file("ann", errors.id) as file:
        assert sum(1 for _ in file) == num_lines - num_lines // 2


@pytest.mark.parametrize("file_id", ["\0", "file-\ud800", "é", "\n"])
async def test_what_cannot_be_an_id_is_not_found(state: State, file_id: str) -> None:
    batches = Batches(JobQueue(state), answer)
    for asking in (
        batches.file("ann", file_id),
        batches.create("ann", URL, file_id, {}),
        batches.batch("ann", file_id),
        batches.cancel("ann", file_id),
    ):
        with pytest.raises(NoSuchObject):
            await asking


async def test_a_name_that_not_every_database_can_store_is_refused(state: State) -> None:
    batches = Batches(JobQueue(state), answer)
    with pytest.raises(RequestError, match="its name must not contain a NUL character"):
        await batches.add_file("ann", "a\0b.jsonl", jsonl(1))
    assert batches.files.num_bytes() == 0
