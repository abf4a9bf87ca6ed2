"""Ends a stream of text at the first of some stop strings, which are not part of the output."""

from collections.abc import Sequence


class StopStrings:
    """Holds back text that may turn out to be the beginning of a stop string.

    The stop string that is whole first counts, the longest of several: how the text is cut into
    pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Return the text before a stop string, so far as it is certain."""
        if not self._stops:
            return text
        text = self._held + text
        starts = ((text.find(stop), len(stop)) for stop in self._stops)
        whole = [(start + length, start) for start, length in starts if start >= 0]
        if whole:
            self.found, self._held = True, ""
            return text[: min(whole)[1]]
        num_held = self._num_held(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def finish(self) -> str:
        """Return what was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        """Measure the longest end of `text` that begins a stop string."""
        longest = max(map(len, self._stops)) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
