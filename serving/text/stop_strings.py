"""Ends a text at a stop string, however it is cut into pieces."""

from collections.abc import Sequence


class StopStrings:
    """Holds back text that may turn out to be the beginning of a stop string.

    The stop string that is whole first counts, the longest of several: how the text is cut into
    pieces makes no difference.

    includes: the text up to the end of the stop string is returned, not up to its beginning.
    """

    def __init__(self, stops: Sequence[str], includes: bool = False) -> None:
        self._stops, self._includes = tuple(stops), includes
        self._pending = ""
        self.has_stopped = False

    def push(self, text: str) -> str:
        """Return the text before a stop string, or with it, so far as it is certain."""
        if not self._stops:
            return text
        text = self._pending + text
        starts = ((text.find(stop), len(stop)) for stop in self._stops)
        whole = [(start + length, start) for start, length in starts if start >= 0]
        if whole:
            self.has_stopped, self._pending = True, ""
            end, start = min(whole)
            return text[: end if self._includes else start]
        num_pending = self._num_pending(text)
        self._pending = text[len(text) - num_pending :]
        return text[: len(text) - num_pending]

    def finish(self) -> str:
        """Return what was held back, once no more text comes."""
        text, self._pending = self._pending, ""
        return text

    def _num_pending(self, text: str) -> int:
        """Measure the longest end of `text` that begins a stop string."""
        longest = max(map(len, self._stops)) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
