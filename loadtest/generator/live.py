"""Shows on a terminal how a run goes: what part of it is over, and the rates of the last second."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tqdm import tqdm

from loadtest.generator.messages import Tally

_BAR = "{desc} {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
_SECONDS = 1.0


class LiveView(Protocol):
    def update(self, time: float, part: float, tallies: list[Tally]) -> None:
        """Show where a run is: its time, the part of the window that is over, what was done."""
        ...


class NoView:
    """Shows nothing, for runs that other programs start."""

    def update(self, time: float, part: float, tallies: list[Tally]) -> None:
        pass


class LiveLine:
    """Keeps one line up to date."""

    def __init__(self, bar: "tqdm[Any]") -> None:
        self._bar = bar
        self._past: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def update(self, time: float, part: float, tallies: list[Tally]) -> None:
        answers = sum(tally.answers for tally in tallies)
        tokens = sum(tally.tokens for tally in tallies)
        self._past.append((time, answers, tokens))
        while len(self._past) > 2 and self._past[1][0] <= time - _SECONDS:
            self._past.popleft()
        then, answers_then, tokens_then = self._past[0]
        seconds = max(time - then, 1e-3)
        parts = [f"{(answers - answers_then) / seconds:.0f} answers/s"]
        if tokens:
            parts.append(f"{(tokens - tokens_then) / seconds:.0f} tokens/s")
        parts.append(f"{sum(tally.in_flight for tally in tallies)} in flight")
        parts.append(f"{sum(tally.errors for tally in tallies)} errors")
        self._bar.set_description_str("measuring" if part else "warm-up", refresh=False)
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.update(part - self._bar.n)


@contextmanager
def live_line() -> Iterator[LiveView]:
    """Show the line on a terminal's standard error, and nothing where that is no terminal."""
    with tqdm(total=1.0, desc="warm-up", bar_format=_BAR, disable=None, leave=False) as bar:
        yield LiveLine(bar)
