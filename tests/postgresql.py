"""A real PostgreSQL server for tests: on a socket in a temporary folder, without fsync."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

import pytest

from serving.storage.opening import open_state
from serving.storage.state import State

# Where Debian, Fedora and Homebrew have the server's programs, which are on no user's PATH.
_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_START_SECONDS = 30.0


def postgresql_programs() -> Path | None:
    """Return the folder with initdb and postgres, of the newest version; None without any."""
    if (program := shutil.which("initdb")) is not None:
        return Path(program).resolve().parent
    roots = (Path("/").glob(pattern.removeprefix("/")) for pattern in _FOLDERS)
    folders = [folder for paths in roots for folder in paths if (folder / "initdb").exists()]
    return max(folders, key=str, default=None)


NEEDS_POSTGRESQL = pytest.mark.skipif(
    postgresql_programs() is None, reason="needs PostgreSQL's server: apt install postgresql"
)


@dataclass
class PostgresqlProcess:
    """A server that can be stopped, killed and started again.

    folder: of its data, its socket and its log.
    """

    folder: Path
    programs: Path
    process: "subprocess.Popen[bytes] | None" = None
    options: tuple[str, ...] = ()

    def url(self, database: str = "postgres", **parameters: str) -> str:
        query = "&".join(
            f"{name}={quote(value, safe='')}"
            for name, value in {"host": str(self.folder), "user": "attendant", **parameters}.items()
        )
        return f"postgresql:///{database}?{query}"

    def start(self) -> None:
        """Return once it answers."""
        import psycopg

        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(self.programs / "postgres", "-D", self.folder / "data"),
                    *("-k", self.folder, "-c", "listen_addresses="),
                    *("-c", "fsync=off", "-c", "max_connections=100", *self.options),
                ],
                stdout=log,
                stderr=log,
                user=_unprivileged_user(),
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                text = (self.folder / "log").read_text(errors="replace")
                assert time.monotonic() < deadline and self.process.poll() is None, text
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT closes all connections, SIGQUIT and SIGKILL are like a loss of power."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(_START_SECONDS)
            self.process = None

    def kill(self) -> None:
        """End all its processes at once: what it has not written to disk it recovers."""
        self._signal_all(signal.SIGKILL)
        self.stop()

    def pause(self) -> None:
        """Let no process of it run, as on a machine that hangs."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def create_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"test_{token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self.process is not None
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        for pid in (self.process.pid, *map(int, children.stdout.split())):
            os.kill(pid, number)


@contextmanager
def running_postgresql(*options: str) -> Iterator[PostgresqlProcess]:
    """Run a new server while the block runs. options: further arguments of `postgres`."""
    programs = postgresql_programs()
    assert programs is not None
    user = _unprivileged_user()
    # A socket's path has at most 107 bytes: pytest's folders may be longer.
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        subprocess.run(
            [
                *(programs / "initdb", "-D", folder / "data", "-U", "attendant"),
                *("--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        server = PostgresqlProcess(folder, programs, options=options)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
            server.stop()


def _unprivileged_user() -> str | None:
    """Return the user that runs the server: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("there is no user but root")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlProcess]:
    """A server for all tests of this process, each with databases of its own."""
    with running_postgresql() as server:
        yield server


@pytest.fixture
def database_url(postgresql_server: PostgresqlProcess) -> str:
    """The URL of a new, empty database."""
    return postgresql_server.create_database()


@pytest.fixture(params=["folder", pytest.param("postgresql", marks=NEEDS_POSTGRESQL)])
def state_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where state is, of either kind: a new folder, or the URL of a new database."""
    if request.param == "folder":
        return str(tmp_path / "state")
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
def state(state_place: str) -> Iterator[State]:
    state = open_state(state_place)
    yield state
    state.close()
