"""Says how a model runs on a machine: how many engines side by side, and how many threads each.

One engine of many threads answers a lone request soonest; engines of one thread each get most done,
as no thread of theirs ever waits for another, and one computes while another's Python runs. A
request's bytes are the same under any plan.
"""

from dataclasses import dataclass
from enum import StrEnum

# Of an engine where nothing was measured, at most: the small operators of a step gain little from
# more.
DEFAULT_THREADS = 4
# Side by side at least, where there are CPUs for them. Over HTTP on two CPUs, two engines of one
# thread answer up to 1.6 times as many requests as one of two threads: its threads wait for each
# other whenever HTTP has one of the CPUs.
DEFAULT_ENGINES = 2


class Origin(StrEnum):
    """Says how a plan came about."""

    GIVEN = "given"
    ONLY = "only one possible"
    MEASURED = "measured"
    KEPT = "measured at an earlier start"
    DEFAULT = "default"
    UNCLEAR = "default, as measuring showed no clear difference"


@dataclass(frozen=True)
class Plan:
    engines: int
    threads: int

    def __str__(self) -> str:
        return f"{_counted(self.engines, 'engine')}, {_counted(self.threads, 'thread')} each"

    @property
    def num_threads(self) -> int:
        return self.engines * self.threads


@dataclass(frozen=True)
class Allowance:
    """Says what a model may use, and what is decided already.

    cpus: for all of its engines together, and for HTTP where it is served.
    engines, threads: None is to be chosen.
    serves_http: HTTP runs beside the engines, on the same CPUs.
    measures: whether there is time to measure the model.
    """

    cpus: int
    engines: int | None = None
    threads: int | None = None
    serves_http: bool = False
    measures: bool = False

    @property
    def given(self) -> Plan | None:
        """Return the plan that what is decided already leaves, if it leaves but one."""
        if self.engines is not None:
            return Plan(self.engines, self.threads or max(1, self.cpus // self.engines))
        if self.threads is not None:
            return Plan(max(1, self.cpus // self.threads), self.threads)
        return None


def spread(cpus: int, threads: int) -> Plan:
    """Return the plan that fills so many CPUs with engines of about so many threads."""
    engines = max(1, int(cpus / threads + 0.5))
    return Plan(engines, max(1, cpus // engines))


def default_plan(cpus: int) -> Plan:
    return spread(cpus, min(DEFAULT_THREADS, max(1, cpus // DEFAULT_ENGINES)))


def unmeasured_plan(allowance: Allowance) -> Plan:
    """Return what is best where nothing was measured. Without HTTP nobody waits for one request
    alone, so a few CPUs get an engine each; many engines would each read all weights for few rows.
    """
    if allowance.serves_http or allowance.cpus > DEFAULT_THREADS:
        return default_plan(allowance.cpus)
    return spread(allowance.cpus, 1)


def candidates(cpus: int) -> list[Plan]:
    """List the plans to be measured, the default first."""
    others = (spread(cpus, threads) for threads in (1, 2, DEFAULT_THREADS, 2 * DEFAULT_THREADS))
    return list(dict.fromkeys([default_plan(cpus), *others]))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
