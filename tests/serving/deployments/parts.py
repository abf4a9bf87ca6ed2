"""The processes of a real server: which there are, where they listen, and how to end one.

As a program it kills one part after the other while somebody else loads the server, and tells how
long nothing was answered:

    python -m tests.serving.deployments.parts URL PID --every 120 --rounds 15
"""

import argparse
import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx

from serving.deployments.process_tree import descendants

# Part -> what the name of its process begins with
NAMES = {
    "haproxy": "haproxy",
    "replica": "ray::ServeReplica",
    "controller": "ray::ServeController",
    "gcs": "gcs_server",
    "raylet": "raylet",
}
MENDED = ("replica", "haproxy", "controller")  # while the server goes on
_LISTEN = "0A"


def pids_of(server: int, part: str) -> list[int]:
    return [pid for pid in descendants(server) if name_of(pid).startswith(NAMES[part])]


def kill(server: int, part: str) -> None:
    """As the kernel does when memory is short."""
    [*pids] = pids_of(server, part)
    assert pids, f"the server has no {part}"
    os.kill(pids[0], signal.SIGKILL)


def name_of(pid: int) -> str:
    """Return what it calls itself, or its program's name."""
    with suppress(OSError):
        first = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        return first if first.startswith("ray::") else Path(first).name
    return ""


def open_to_others(pid: int) -> list[str]:
    """The addresses this process listens at that are not of this machine alone, as /proc has them:
    in hexadecimal, the bytes of each 32 bits the other way round.
    """
    with suppress(OSError):
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        return [at for inode, at in _listening(pid) if f"socket:[{inode}]" in links]
    return []


def _listening(pid: int) -> Iterator[tuple[str, str]]:
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = line.split()[:10]
            is_loopback = address.split(":")[0][-8:] == "0100007F"
            if state == _LISTEN and not is_loopback:
                yield inode, address


def seconds_until_answered(url: str, limit: float = 60) -> tuple[float, set[str]]:
    """Ask until an answer is right. With it, what the others were."""
    start = time.monotonic()
    others = set()
    while (waited := time.monotonic() - start) < limit:
        try:
            response = httpx.get(f"{url}/ready", timeout=5)
            if response.status_code == 200:
                break
            others.add(f"{response.status_code} {response.text}")
        except httpx.TransportError as error:
            others.add(type(error).__name__)
        time.sleep(0.02)
    return waited, others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("pid", type=int, help="of attendant serve")
    parser.add_argument("--every", type=float, default=120.0, help="seconds")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for part in itertools.islice(itertools.cycle(MENDED), given.rounds):
        kill(given.pid, part)
        waited, others = seconds_until_answered(given.url)
        print(f"{time.strftime('%H:%M:%S')} {part}: {waited:.2f} s {sorted(others)}", flush=True)
        time.sleep(max(0.0, given.every - waited))


if __name__ == "__main__":
    main()
