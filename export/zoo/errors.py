"""Names what ends the work on a family."""

from collections.abc import Sequence


class ZooError(Exception):
    """Says what cannot be done, and why; `problems` lists everything found wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class OutOfTime(Exception):
    """The time for this call is over; what was in progress is saved, and goes on with the next."""
