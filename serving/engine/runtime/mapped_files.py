"""Files that the process has mapped into its memory, as ONNX Runtime does with weights."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MADV_DONTNEED = 4  # of <sys/mman.h>
_MAPPINGS = Path("/proc/self/smaps")


def release_pages(file: Path) -> None:
    """Drop the resident pages of a mapped file, as if none had been read yet.

    Packed weights replace most tensors of a bundle, whose pages would stay resident all the same. A
    page that is used again comes from the page cache. Mappings that the process has written to are
    left as they are, and so is everything where there is no /proc.
    """
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    for start, size in _unchanged_mappings(file):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


def _unchanged_mappings(file: Path) -> Iterator[tuple[int, int]]:
    """Yield address and bytes of each mapping of the file that has no changed pages."""
    path = os.fsencode(file.resolve())
    start = end = 0
    is_of_file = False
    with suppress(OSError), _MAPPINGS.open("rb") as lines:
        for line in lines:
            first, *fields = line.split(maxsplit=5)
            if not first.endswith(b":"):  # the first line of a mapping, with its addresses
                is_of_file = len(fields) == 5 and fields[4].rstrip(b"\n") == path
                start, end = (int(address, 16) for address in first.split(b"-"))
            elif is_of_file and first == b"Anonymous:" and int(fields[0]) == 0:
                yield start, end - start
