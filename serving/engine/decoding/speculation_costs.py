"""Measures steps on this machine. Verifying drafts saves time only if it takes little longer than a
normal step.

The graph that verifies has its own weights. If these and the step graph's do not fit into the
processor's cache together, the steps after a verification are slow too: up to twice as slow with
small models. This counts as a part of the cost of a verification.
"""

from dataclasses import dataclass, field

PACE = 1.03  # step up or down towards each measurement, which converges to the median
PATIENCE = 100  # after this many refused drafts one is verified, to measure again
LEAST_GAIN = 1.1  # pays for the search for drafts
NUM_AFTER = 2  # steps that a verification slows down
LONGEST = 8  # verifications that are measured together


class Costs:
    """Seconds of steps, for each number of rows: of the run, and of the host's work for
    each token.
    """

    def __init__(self) -> None:
        self._of_rows: dict[int, Cost] = {}
        self._last = Cost()

    def note(self, is_verified: bool, num_rows: int, seconds: float) -> None:
        """Record the duration of a step."""
        cost = self._of_rows.setdefault(num_rows, Cost())
        if cost is not self._last:
            self._last.break_off()
            self._last = cost
        cost.note(is_verified, seconds)

    def pays(self, num_rows: int, num_hoped: float) -> bool:
        """Return whether the expected tokens are worth the longer step. Unmeasured cases
        are tried.
        """
        if not num_hoped:
            return False
        cost = self._of_rows.get(num_rows)
        return cost is None or cost.pays((num_rows + num_hoped) / num_rows)


@dataclass(slots=True, eq=False)
class Cost:
    """Median seconds of a step, and of a verification; None if unknown.

    series: seconds of consecutive verifications, including the slower steps after them.
    num_after: number of steps since the last of them.
    num_refused: number of drafts that were not verified since the last attempt.
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
        """Discard verifications whose following steps were not all measured."""
        self.series, self.num_after = [], 0

    def pays(self, gain: float) -> bool:
        """Return whether a verification saves time if it multiplies a step's tokens by `gain`."""
        if self.plain is None or self.verified is None:
            return self.plain is not None
        is_worth_it = gain * self.plain > LEAST_GAIN * self.verified
        self.num_refused = 0 if is_worth_it else (self.num_refused + 1) % PATIENCE
        return self.num_refused == 0

    def _sum_up(self) -> None:
        """Update the median; the first verification of all is skipped because it takes longer than
        others.
        """
        if not self.is_new:
            self.verified = _followed(self.verified, sum(self.series) / len(self.series))
        self.is_new = False
        self.break_off()


def _followed(known: float | None, seconds: float) -> float:
    if known is None:
        return seconds
    return known * PACE if seconds > known else known / PACE
