"""Reading files that others have written: nothing that never ends or does not fit into memory."""

import errno
import json
import stat
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28  # of configurations, vocabularies, tokenizers; weights are mapped


def read_file(path: Path) -> bytes:
    """Raises OSError, also for what is no regular file (a pipe, a device) or beyond 256 MiB."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path.name)
    if status.st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", path.name)
    return path.read_bytes()


def read_text(path: Path) -> str:
    """UTF-8. Raises OSError as `read_file` does, UnicodeDecodeError."""
    return read_file(path).decode("utf-8")


def read_json(path: Path) -> Any:
    """Raises OSError as `read_file` does, and ValueError with what is wrong inside."""
    try:
        text = read_text(path)
        if not text.strip():
            raise ValueError("is empty")
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is not JSON: it nests too deep") from None
