"""The private folder of one run: Ray's sockets, logs and token, and HAProxy's files."""

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serving.errors import AttendantError, PartEnded

# The path of a Unix socket has at most 107 bytes. Ray's longest is
# /ray/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store
_MAX_PATH_BYTES = 107 - 68
_PREFIX = "attendant-"
_CLAIM = "claim"
_HEALTH_URL = "health-url"


@contextmanager
def run_folder() -> Iterator[Path]:
    """Make the folder, and remove it when the block ends.

    The next run removes it if this one is killed. After a start that failed, it stays for its logs.
    """
    _remove_abandoned()
    folder = _new_folder()
    claim = _claim(folder)
    try:
        yield folder
    except PartEnded:
        shutil.rmtree(
            folder, ignore_errors=True
        )  # a server that is restarted again and again must not fill the disk
        raise
    except Exception as error:
        logs = ray_folder(folder) / "session_latest" / "logs"
        if not logs.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _CLAIM).unlink()
        raise AttendantError(f"{error} (Ray's logs: {logs})") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(claim)


def ray_folder(folder: Path) -> Path:
    """Return Ray's folder. All users may read it, so it is inside the private one."""
    return folder / "ray"


def write_health_url(folder: Path, url: str) -> None:
    """Write where the server tells that it is alive, for the health check of a container."""
    (folder / _HEALTH_URL).write_text(url + "\n", encoding="utf-8")


def write_token(folder: Path) -> Path:
    """Write the token by which processes of this Ray authenticate to each other."""
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _new_folder() -> Path:
    """Make the folder in the first writable place for temporary files with a short path."""
    for place in _places():
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            if len(os.fsencode(folder)) <= _MAX_PATH_BYTES:
                return folder
            folder.rmdir()
    raise AttendantError(
        f"no folder for temporary files: set TMPDIR to one that can be written and whose path "
        f"has at most {_MAX_PATH_BYTES - len('/attendant-12345678')} bytes"
    )


def _claim(folder: Path) -> int:
    """Lock a file in the folder while this process lives; it gets its name once it is locked."""
    path = folder / f"{_CLAIM}.new"
    claim = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
    fcntl.flock(claim, fcntl.LOCK_EX)
    path.rename(folder / _CLAIM)
    return claim


def _remove_abandoned() -> None:
    for folder in abandoned_folders():
        shutil.rmtree(folder, ignore_errors=True)


def abandoned_folders() -> Iterator[Path]:
    """Yield the folders of this user whose processes were killed."""
    for place in dict.fromkeys(_places()):
        for folder in Path(place).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if folder.lstat().st_uid == os.geteuid() and _is_abandoned(folder):
                    yield folder


def _is_abandoned(folder: Path) -> bool:
    claim = os.open(folder / _CLAIM, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(claim)
    return True


def _places() -> list[str]:
    named = [os.environ.get(name, "") for name in ("RAY_TMPDIR", "TMPDIR", "TEMP", "TMP")]
    common = ["/tmp", "/var/tmp", os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"]
    return [place for place in (*named, *common) if os.path.isabs(place)]
