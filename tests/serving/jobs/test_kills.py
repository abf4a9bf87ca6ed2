"""Jobs, glossaries and quotas after a kill at every write: nothing is lost or done twice."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

from tests.postgresql import NEEDS_POSTGRESQL, PostgresqlProcess
from tests.serving.jobs.killed import (
    NUM_LINES,
    NUM_REQUESTS,
    NUM_UNITS,
    Journal,
    go_on,
    work,
)

_FEWEST = 50  # writes of a process that is not killed, at least
_SECONDS = 120
NewPlace = Callable[[Path], str]


@pytest.fixture(scope="module")
def processes() -> BaseContext:
    """Processes that begin with all modules loaded."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.serving.jobs.killed"])
    return context


@pytest.fixture(params=["folder", pytest.param("postgresql", marks=NEEDS_POSTGRESQL)])
def new_place(request: pytest.FixtureRequest) -> NewPlace:
    """What makes a new place of state, of either kind, of a test's folder."""
    if request.param == "folder":
        return lambda folder: str(folder / "state")
    server: PostgresqlProcess = request.getfixturevalue("postgresql_server")
    return lambda folder: server.create_database()


def ended(processes: Any, target: Any, *arguments: Any) -> int:
    process = processes.Process(target=target, args=arguments)
    process.start()
    process.join(_SECONDS)
    assert process.exitcode is not None
    return int(process.exitcode)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("num_documents", "step"),
    [
        (1, 25),
        pytest.param(1, 5, marks=pytest.mark.full),
        pytest.param(12, 1, marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_write_loses_nothing_and_repeats_nothing(
    processes: BaseContext, new_place: NewPlace, tmp_path: Path, num_documents: int, step: int
) -> None:
    """step: 1 for a kill at every write."""
    for number in count(1, step):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = new_place(folder)
        code = ended(processes, work, folder, place, number, num_documents)
        assert code in (-9, 0)
        if code == 0:
            break
        assert ended(processes, go_on, folder, place) == 0, f"killed at write {number}"
        check(Journal(folder), num_documents)
    print(f"{number // step} kills")
    assert number > _FEWEST


def check(journal: Journal, num_documents: int) -> None:
    """Of a document whose sending had begun, the client may have all but the last byte."""
    accepted = {each["number"] for each in journal.read("accepted")}
    sent = Counter(each["number"] for each in journal.read("sending"))
    assert all(each["is_right"] for each in journal.read("sending"))
    assert {*sent} == accepted <= {*range(num_documents)}
    assert max(sent.values(), default=1) == 1
    for each in journal.read("batch ended"):
        assert each["said"] == [str(line) for line in range(NUM_REQUESTS)]
    assert len(journal.read("batch ended")) == len(journal.read("batch"))
    for each in journal.read("memory filled"):
        assert each["units"] == [f"unit {number}" for number in range(NUM_UNITS)]
    assert len(journal.read("memory filled")) == len(journal.read("imported"))
    # At most the last one was billed without its client's having heard of it.
    [used], num_billed = journal.read("used"), len(journal.read("billed"))
    assert num_billed <= used["characters"] <= num_billed + 1
    [end] = journal.read("went on")
    assert len(end["texts"]) == len({*end["texts"]})
    expected = end["num_open"] * NUM_LINES - end["saved"]
    # A document that was accepted without the client hearing of it is translated too.
    orphans = [text for text in end["texts"] if int(text.split()[1]) not in accepted]
    assert len(end["texts"]) - len(orphans) == expected
