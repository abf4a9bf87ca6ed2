"""Records a run as raw timestamps: every exchange, and a mark at each end of the window.

Every figure of a report is computed from this record and from nothing else, so that a timeline file
can be looked into, or summarised in another way, long after the server is gone.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK = "ok"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Holds the times of one request and its answer, in seconds since the run began."""

    user: int
    start: float
    end: float
    outcome: str  # OK, or the kind of error
    first_token: float | None = None  # None where the answer was not streamed
    sentences: int = 0
    tokens: int | None = None  # generated tokens, where the answer reports them


@dataclass(frozen=True, slots=True)
class Mark:
    """Marks one end of the measured window, with the server's own count of generated tokens."""

    time: float
    server_tokens: float | None = None


@dataclass(slots=True)
class Timeline:
    """Records one run: how it was asked for, every exchange, and the window that counts."""

    run: dict[str, Any]
    exchanges: list[Exchange] = field(default_factory=list)
    opened: Mark = Mark(0.0)
    closed: Mark = Mark(0.0)

    @property
    def seconds(self) -> float:
        return self.closed.time - self.opened.time

    @property
    def measured(self) -> list[Exchange]:
        """Return the exchanges that ended inside the window, without warm-up and draining."""
        return [e for e in self.exchanges if self.opened.time < e.end <= self.closed.time]

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in self._records())

    def _records(self) -> Iterator[dict[str, Any]]:
        yield {"record": "run", **self.run}
        yield {"record": "opened", **asdict(self.opened)}
        yield from ({"record": "exchange", **asdict(exchange)} for exchange in self.exchanges)
        yield {"record": "closed", **asdict(self.closed)}
