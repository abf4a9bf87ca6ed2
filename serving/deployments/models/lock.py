"""Lets models of one server come and go one at a time, whichever replicas are asked."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

CHANGES_LOCK = "ATTENDANT_CHANGES_LOCK"


def changes_lock() -> Path | None:
    """Return the file whose lock is held during a change; None where there are none, as on a
    cluster, which is given a new configuration instead.
    """
    name = os.environ.get(CHANGES_LOCK)
    return Path(name) if name else None


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    with path.open("a") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield
