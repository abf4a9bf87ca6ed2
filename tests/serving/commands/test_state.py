"""`attendant state`: what a place has, and moving it."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serving.cli import main
from serving.glossaries.entries import GlossaryPair
from serving.glossaries.store import GlossaryStore
from serving.storage.opening import STATE_VARIABLE, open_state

PAIR = GlossaryPair("en", "fr")


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(main, ["state", *arguments])


def add_glossary(place: str) -> str:
    """Return the id of a new glossary with two entries."""
    with closing(open_state(place)) as state:
        entries = {"dog": "chien", "cat": "chat"}
        return asyncio.run(GlossaryStore(state).create("ann", "Pets", {PAIR: entries})).id


def test_what_was_stored_is_there_after_copying(state_place: str, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    glossary = add_glossary(source)

    result = run("copy", source, **{STATE_VARIABLE: state_place})

    assert result.exit_code == 0, result.output
    assert result.output.endswith(": 1 glossaries, 1 dictionaries, 2 entries\n")
    with closing(open_state(state_place)) as state:
        entries = asyncio.run(GlossaryStore(state).entries("ann", glossary, PAIR))
    assert entries == {"dog": "chien", "cat": "chat"}


def test_a_check_prints_what_a_place_has(state_place: str) -> None:
    add_glossary(state_place)
    result = run("check", state_place)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("place: ")
    assert "glossaries, version 2: 1 glossaries, 1 dictionaries, 2 entries" in lines
    assert "quota, version 1: nothing" in lines
    assert lines[-1] == "files: nothing"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("/nowhere", "/nowhere: there is no such folder"),
        ("/proc", "/proc: has no state"),
        ("", "the state: no place is named"),
        ("mysql://u:hunter2@h/d", "state in mysql:/...: is neither a folder nor a URL that begins"),
        ("postgresql://u:hunter2@127.0.0.1:1/d", "postgresql://u@127.0.0.1:1/d: "),
        ("postgresql://u:hunter2@[::1/d", "the URL of the database: is none; it is like"),
    ],
)
def test_wrong_places_are_refused_in_one_line(place: str, problem: str, tmp_path: Path) -> None:
    for arguments in (("check", place), ("copy", place, str(tmp_path / "target"))):
        result = run(*arguments)
        assert result.exit_code == 2
        [line] = result.output.splitlines()
        assert line.startswith(f"attendant: {problem}")
        assert "hunter2" not in line
