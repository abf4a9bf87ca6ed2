"""Replace a bundle by another one, so that a program killed at any moment leaves a whole one.

Linux exchanges two folders in one call. Where the file system or the C library cannot (NFS, macOS),
the old bundle is renamed first: a program killed before the new one has its name leaves the old one
beside it, and `restore_replaced_bundle` gives it its name back.
"""

import ctypes
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100  # of <fcntl.h>: a relative path begins at the working directory
_RENAME_EXCHANGE = 2  # of <linux/fs.h>
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # by the file system or the kernel


def replace_bundle(new: Path, old: Path) -> None:
    """Rename ``new`` to ``old``, and what was ``old``, if anything, to ``new``."""
    if not old.exists():
        new.rename(old)
    elif not _exchange(new, old):
        retired = _replaced_path(old)
        if retired.exists():  # of a program that was killed after the second of these renames
            shutil.rmtree(retired)
        while not _rename_both(new, old, retired):
            pass
        retired.rename(new)


def restore_replaced_bundle(folder: Path) -> None:
    """Give a bundle its name back if a program was killed while it replaced it."""
    if not folder.exists():
        with suppress(OSError):  # there is none, or the folder cannot be written to
            _replaced_path(folder).rename(folder)


def _rename_both(new: Path, old: Path, retired: Path) -> bool:
    """Rename ``old`` to ``retired``, then ``new`` to ``old``. Return False if another process has
    given the old one its name back, because it opened the bundle between these two.
    """
    old.rename(retired)
    try:
        new.rename(old)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _replaced_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step. Return False where that cannot be done."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
