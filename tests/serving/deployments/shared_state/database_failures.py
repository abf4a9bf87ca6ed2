"""How the database of an installation fails, each while a block runs."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from tests.serving.deployments.shared_state.installation import Installation
from tests.small_disk import fill, make_room, small_disk


@contextmanager
def stopped(installation: Installation) -> Iterator[None]:
    installation.postgresql.stop()
    try:
        yield
    finally:
        installation.postgresql.start()


@contextmanager
def killed(installation: Installation) -> Iterator[None]:
    installation.postgresql.kill()
    try:
        yield
    finally:
        installation.postgresql.start()


@contextmanager
def paused(installation: Installation) -> Iterator[None]:
    installation.postgresql.pause()
    try:
        yield
    finally:
        installation.postgresql.resume()


@contextmanager
def cut_off(installation: Installation) -> Iterator[None]:
    installation.network.cut()
    try:
        yield
    finally:
        installation.network.mend()


@contextmanager
def read_only(installation: Installation) -> Iterator[None]:
    """As a primary server that was demoted."""
    url = installation.postgresql.url(options="-c default_transaction_read_only=off")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")


@contextmanager
def without_connections(installation: Installation) -> Iterator[None]:
    """Others hold all connections."""
    url = installation.postgresql.url()
    with ExitStack() as others:
        connections = [others.enter_context(psycopg.connect(url, autocommit=True))]

        def hold_all() -> None:
            while True:
                try:
                    connections.append(others.enter_context(psycopg.connect(url)))
                except psycopg.OperationalError:
                    return

        hold_all()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            connections[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'attendant'"
            )
            hold_all()
        yield


@contextmanager
def full(installation: Installation) -> Iterator[None]:
    """The disk of its tables is full."""
    folder = installation.postgresql.folder
    with small_disk(folder / "disk", mib=64) as disk:
        shutil.chown(disk, *os.stat(folder)[4:6])
        execute = installation.execute
        execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        try:
            for kind in ("TABLE", "INDEX"):
                execute(f"ALTER {kind} ALL IN TABLESPACE pg_default SET TABLESPACE small")
            fill(disk)
            yield
        finally:
            make_room(disk)
            for kind in ("TABLE", "INDEX"):
                execute(f"ALTER {kind} ALL IN TABLESPACE small SET TABLESPACE pg_default")
            execute("DROP TABLESPACE small")
