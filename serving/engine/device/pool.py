"""Keeps copies of states in one block of device memory that is set aside at the start."""

from collections.abc import Callable, Sequence

from serving.arrays import Array

ALIGNMENT = 256  # bytes, as of what CUDA allocates


class DevicePool:
    """Takes the first gap that is large enough. A stream orders all copies, so that room given back
    is free at once.
    """

    def __init__(self, block: Array, copy: Callable[[Array, Array], None]) -> None:
        """block: uint8 [bytes]. copy: (target, source) of one shape and type."""
        self._block, self._copy = block, copy
        self._gaps = [(0, len(block))]  # (start, end), ascending, never touching
        self._taken: dict[int, tuple[int, int]] = {}  # by the identity of a list of copies

    def keep(self, parts: Sequence[Array]) -> list[Array] | None:
        place = self._take(max(sum(_aligned(part.nbytes) for part in parts), ALIGNMENT))
        if place is None:
            return None
        kept, start = [], place[0]
        for part in parts:
            room = self._block[start : start + part.nbytes]
            kept.append(room.view(part.dtype).reshape(part.shape))
            self._copy(kept[-1], part)
            start += _aligned(part.nbytes)
        self._taken[id(kept)] = place
        return kept

    def forget(self, kept: Sequence[Array]) -> None:
        start, end = self._taken.pop(id(kept))
        before = [gap for gap in self._gaps if gap[1] <= start]
        behind = [gap for gap in self._gaps if gap[0] >= end]
        if before and before[-1][1] == start:
            start = before.pop()[0]
        if behind and behind[0][0] == end:
            end = behind.pop(0)[1]
        self._gaps = [*before, (start, end), *behind]

    def _take(self, size: int) -> tuple[int, int] | None:
        for i, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                rest = (start + size, end)
                self._gaps[i : i + 1] = [rest] if rest[0] < rest[1] else []
                return start, start + size
        return None


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
