"""The memory of a server and of all processes that it has started."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from serving.deployments.process_tree import descendants


@dataclass(frozen=True)
class Memory:
    """Proportional set sizes: pages that several processes map count in equal parts.

    model_mib: of the largest process, which holds the model.
    total_mib: of all processes of a server.
    """

    model_mib: float
    total_mib: float

    @classmethod
    def of_server(cls, pid: int) -> "Memory":
        """Read the memory of a server by its first process."""
        sizes = [_pss_mib(process) for process in (pid, *descendants(pid))]
        return cls(max(sizes), sum(sizes))


def _pss_mib(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0  # it has ended
