"""State is checked before Ray starts: a sentence for what is wrong with it, and patience with a
database that is being started.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from serving.bundle.manifest import Precision
from serving.cli import main
from serving.deployments import start_checks
from serving.deployments.progress import StartProgress
from serving.deployments.start_checks import state_problems
from serving.deployments.stores import SCHEMAS
from serving.errors import PartEnded
from serving.storage.opening import STATE_VARIABLE, open_state
from serving.storage.schema import Migration, Schema
from tests.docs.pages import ROOT
from tests.postgresql import NEEDS_POSTGRESQL, PostgresqlProcess, running_postgresql
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("bahdanau", tmp_path_factory.mktemp("bundle"), Precision.INT8)


def check(place: str | None) -> list[str]:
    return list(state_problems(place, StartProgress()))


def test_state_that_can_be_used_has_no_problem(state_place: str) -> None:
    assert check(state_place) == []
    assert check(state_place) == []


def test_newer_tables_are_refused_by_name(state_place: str) -> None:
    schema = SCHEMAS[0]
    newer = Migration("CREATE TABLE newer (number INTEGER PRIMARY KEY) STRICT;", breaks_older=True)
    with closing(open_state(state_place)) as state:
        database = state.database(Schema(schema.name, [*schema.migrations, newer]))
        database.run_blocking(lambda connection: None)
    [problem] = check(state_place)
    version = len(schema.migrations) + 1
    assert f"its {schema.name} have version {version} of a newer Attendant" in problem


def test_a_default_folder_is_checked_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert check(None) == []
    assert not (tmp_path / "state").exists()
    (tmp_path / "state" / "attendant").mkdir(parents=True)
    (tmp_path / "state" / "attendant" / f"{SCHEMAS[0].name}.sqlite3").write_text("no database" * 99)
    [problem] = check(None)
    assert "file is not a database" in problem


@NEEDS_POSTGRESQL
def test_a_database_that_is_being_started_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_postgresql() as server:
        url = server.create_database()
        server.stop()
        starter = threading.Timer(2.5, server.start)
        starter.start()
        assert check(url) == []
        starter.join()
    assert "Waiting for postgresql://attendant@/" in capsys.readouterr().err


def test_a_database_that_never_answers_is_told_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_checks, "DATABASE_SECONDS", 1.0)
    with pytest.raises(PartEnded, match=r"postgresql://u@127\.0\.0\.1:1/d: .*refused") as caught:
        check("postgresql://u:hunter2@127.0.0.1:1/d")
    assert "hunter2" not in str(caught.value)


def serve(bundle: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "serving.cli", "serve", str(bundle), "--port", "0", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("postgresql://u:hunter2@[::1/d", "the URL of the database: is none; it is like "),
        ("mysql://u:hunter2@h/d", "state in mysql:/...: is neither a folder nor a URL"),
        ("/dev/null/state", "/dev/null/state: Not a directory; name another folder with --state"),
    ],
)
def test_wrong_places_are_mistakes_of_one_line(bundle: Path, place: str, problem: str) -> None:
    """The option, the variable and the file."""
    for arguments, environment in (
        (("--state", place), {}),
        ((), {STATE_VARIABLE: place}),
    ):
        result = serve(bundle, *arguments, **environment)
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert line.startswith(f"attendant: {problem}")
        assert "hunter2" not in line


@NEEDS_POSTGRESQL
def test_what_a_database_refuses_is_a_mistake_of_one_line(
    bundle: Path, postgresql_server: PostgresqlProcess
) -> None:
    result = serve(bundle, **{STATE_VARIABLE: postgresql_server.url("none", password="hunter2")})
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert line.endswith('database "none" does not exist')
    assert "hunter2" not in line


@NEEDS_POSTGRESQL
def test_the_documented_user_and_database_can_be_used(
    postgresql_server: PostgresqlProcess,
) -> None:
    text = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    statements = re.findall(r'-c "(CREATE [^"]*)"', text)
    assert len(statements) == 2
    for statement in statements:  # the user of the tests' server has this name already
        postgresql_server.execute(statement.replace("attendant", "reader"))
    assert check(postgresql_server.url("reader", user="reader")) == []


def test_without_psycopg_is_said_what_to_install(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError(name='psycopg')")
    environment = {STATE_VARIABLE: "postgresql://u@h/d", "PYTHONPATH": str(tmp_path)}
    result = serve(bundle, **environment)
    assert result.returncode == 2
    message = "state in PostgreSQL: needs psycopg: pip install 'attendant-server[postgresql]'"
    assert result.stderr == f"attendant: {message}\n"


def test_the_old_option_names_the_new_one(bundle: Path) -> None:
    result = CliRunner().invoke(main, ["serve", str(bundle), "--state-dir", "a"])
    assert result.exit_code == 2
    assert "--state-dir is called --state now" in result.output
    shown = CliRunner().invoke(main, ["serve", "--help"]).output
    assert "--state-dir" not in shown
    assert STATE_VARIABLE in shown


def test_a_server_that_waits_for_its_database_can_be_stopped(bundle: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "serving.cli", "serve", str(bundle), "--port", "0"],
        env={**os.environ, STATE_VARIABLE: "postgresql://u:hunter2@127.0.0.1:1/d"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Waiting for postgresql://u@127.0.0.1:1/d ...")
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(30) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 10
