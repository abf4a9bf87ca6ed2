"""Learns what steps take on this machine: to verify drafts pays by how much longer it takes.

The graph that verifies has weights of its own. Where they and those of the step graph do not fit
into the processor's cache together, the steps after a verification are slow too: up to twice as
slow with small models. That is counted as a part of its cost.
"""

from dataclasses import dataclass, field

PACE = 1.03  # by which what is known follows what comes, up or down: so it finds the median
PATIENCE = 100  # drafts that do not pay until one is tried all the same, to see whether that holds
LEAST_GAIN = 1.1  # to make up for the search for drafts
NUM_AFTER = 2  # steps that a verification slows down
LONGEST = 8  # verifications that are counted together


class Costs:
    """Keeps the seconds of steps, apart for each number of rows: the run, and the host's part for
    each token that is taken of it.
    """

    def __init__(self) -> None:
        self._of_rows: dict[int, Cost] = {}
        self._last = Cost()

    def note(self, is_verified: bool, num_rows: int, seconds: float) -> None:
        """Take note of a step."""
        cost = self._of_rows.setdefault(num_rows, Cost())
        if cost is not self._last:
            self._last.break_off()
            self._last = cost
        cost.note(is_verified, seconds)

    def pays(self, num_rows: int, num_hoped: float) -> bool:
        """Tell whether so many more tokens are worth the longer step. What is unknown is tried."""
        if not num_hoped:
            return False
        cost = self._of_rows.get(num_rows)
        return cost is None or cost.pays((num_rows + num_hoped) / num_rows)


@dataclass(slots=True, eq=False)
class Cost:
    """Holds the median seconds of a step, and of one that verifies drafts; None while unknown.

    series: the seconds of verifications one after the other, what they slowed others down by
    included. num_after: how many steps since the last of them. num_refused: how many drafts did not
    pay since one was tried.
    """

    plain: float | None = None
    verified: float | None = None
    series: list[float] = field(default_factory=list)
    num_after: int = 0
    num_refused: int = 0
    is_new: bool = True

    def note(self, is_verified: bool, seconds: float) -> None:
        if is_verified:
            self.series.append(seconds)
            self.num_after = 0
        elif not self.series:
            self.plain = _followed(self.plain, seconds)
        else:
            self.num_after += 1
            self.series[-1] += seconds - (self.plain or seconds)
        if self.num_after == NUM_AFTER or len(self.series) == LONGEST:
            self._sum_up()

    def break_off(self) -> None:
        """Forget verifications whose consequences are not known."""
        self.series, self.num_after = [], 0

    def pays(self, gain: float) -> bool:
        """Tell whether to verify is right if it multiplies a step's tokens by so much."""
        if self.plain is None or self.verified is None:
            return self.plain is not None
        is_worth_it = gain * self.plain > LEAST_GAIN * self.verified
        self.num_refused = 0 if is_worth_it else (self.num_refused + 1) % PATIENCE
        return self.num_refused == 0

    def _sum_up(self) -> None:
        """Let what is known follow; the first verification of all takes longer than any other."""
        if not self.is_new:
            self.verified = _followed(self.verified, sum(self.series) / len(self.series))
        self.is_new = False
        self.break_off()


def _followed(known: float | None, seconds: float) -> float:
    if known is None:
        return seconds
    return known * PACE if seconds > known else known / PACE
