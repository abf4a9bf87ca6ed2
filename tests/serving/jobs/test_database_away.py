"""Files of jobs while PostgreSQL hangs: whoever wants them waits, and nobody else."""

import asyncio
import io
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.errors import StorageError
from serving.jobs.batches import Batches
from serving.jobs.queue import JobQueue
from serving.storage.opening import open_state
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.serving.jobs.killed import answer, requests

pytestmark = NEEDS_POSTGRESQL


@pytest.mark.full
async def test_uploads_to_a_database_that_hangs_leave_threads_to_other_requests() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    with running_postgresql() as server:
        state = open_state(server.create_database())
        batches = Batches(JobQueue(state), answer)
        await batches.add_file("ann", "in.jsonl", requests())
        server.pause()
        try:
            uploads = [
                asyncio.create_task(batches.add_file("ann", "in.jsonl", io.BytesIO(b"{}")))
                for _ in range(6)
            ]
            await asyncio.sleep(0.5)
            started = time.monotonic()
            await asyncio.to_thread(int)
            assert time.monotonic() - started < 1
            ends = await asyncio.gather(*uploads, return_exceptions=True)
        finally:
            server.resume()
        assert {type(end) for end in ends} == {StorageError}
        await asyncio.to_thread(state.close)
