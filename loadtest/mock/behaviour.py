"""Says how the mock server behaves: how long it takes, and what it does wrong."""

import math
import random
from dataclasses import dataclass

GOOD = "good"
FAULTS = ("refuse", "fail", "nonsense", "late_error", "cut")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Holds latencies and shares of faults. Without any it answers at once and well.

    first_token_seconds: median of a log-normal distribution whose logarithm deviates by `spread`.
    token_seconds: between further tokens. Answers that are not streamed take as long as the whole
    stream would. stall_at: number of the request at which the server stands still, connections
    and all, for `stall_seconds`. Faults befall none of the first `good_requests`.
    """

    first_token_seconds: float = 0.0
    spread: float = 0.0
    token_seconds: float = 0.0
    num_tokens: int = 16
    seed: int = 0
    stall_at: int | None = None
    stall_seconds: float = 2.0
    good_requests: int = 0
    refuse: float = 0.0
    fail: float = 0.0
    nonsense: float = 0.0
    late_error: float = 0.0
    cut: float = 0.0

    def draw(self, number: int) -> "Course":
        """Return what is to become of the request that is the so-many-th to come."""
        draws = random.Random((self.seed << 40) + number)
        factor = math.exp(self.spread * draws.gauss(0, 1))
        shares = [getattr(self, name) for name in FAULTS]
        names, weights = (GOOD, *FAULTS), (1 - sum(shares), *shares)
        fault = draws.choices(names, weights)[0] if number >= self.good_requests else GOOD
        return Course(self.first_token_seconds * factor, fault)


@dataclass(frozen=True, slots=True)
class Course:
    """Holds what becomes of one request."""

    first_token_seconds: float
    fault: str
