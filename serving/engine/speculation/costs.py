"""Learns what runs take on this machine: to verify drafts pays by how much longer it takes."""

SLOWER = 1.05  # at most, from one run to the next: what holds up a run is mostly other work
FORGOTTEN = 0.99  # what keeps drafts from being verified is tried again at last


class Costs:
    """Keeps the seconds of a run of so many rows, as the quickest of late took."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[bool, int], float | None] = {}

    def note(self, is_verified: bool, num_rows: int, seconds: float) -> None:
        """Take note of a run. The first of its kind, which takes longer, does not count."""
        key = is_verified, num_rows
        if key not in self._seconds:
            self._seconds[key] = None
            return
        known = self._seconds[key]
        self._seconds[key] = seconds if known is None else min(seconds, SLOWER * known)

    def pays(self, num_rows: int, num_hoped: float) -> bool:
        """Tell whether so many more tokens are worth the longer run. What is not known is tried."""
        if not num_hoped:
            return False
        plain = self._seconds.get((False, num_rows))
        verified = self._seconds.get((True, num_rows))
        if plain is None or verified is None:
            return True
        if (num_rows + num_hoped) * plain > num_rows * verified:
            return True
        self._seconds[True, num_rows] = FORGOTTEN * verified
        return False
