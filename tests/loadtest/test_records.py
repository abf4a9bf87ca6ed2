"""A recording holds a run whole, also one that was killed, and says which line of it is broken."""

import json
from pathlib import Path

import pytest

from loadtest.records import (
    CLOSED_LOOP,
    GeneratorSample,
    LoadTestError,
    MeasuringWindow,
    Record,
    Recording,
    RecordWriter,
    ServerSample,
    line_of,
    read_recording,
)
from tests.loadtest.recordings import request_of, run_of

RECORDS: list[Record] = [
    run_of(settings={"warm_up": 1.0}),
    ServerSample(time=1.0, generated_tokens=3.0),
    request_of(1.25, 1.9, tokens=(1.3, 1.32)),
    request_of(1.25, 1.9, outcome="HTTP 500", status=500, detail="arrêté"),
    GeneratorSample(time=2.0, cpu=0.5, lag_ms=0.4),
    MeasuringWindow(opened=1.0, closed=2.5),
]


def written(path: Path, *records: Record) -> Path:
    with RecordWriter(path) as writer:
        writer.write(*records)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path / "run.jsonl", *RECORDS))
    assert [recording.run, *recording.server, *recording.requests] == RECORDS[:4]
    assert [*recording.generator, recording.window] == RECORDS[4:]
    assert recording.is_complete
    assert recording.seconds == 1.5


def test_records_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordWriter(path) as one, RecordWriter(path) as other:
        one.write(RECORDS[0])
        other.write(RECORDS[2])
        one.write(RECORDS[3])
        assert read_recording(path).requests == RECORDS[2:4]


def test_a_killed_run_ends_with_its_last_record(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", *RECORDS[:-1])
    with path.open("a") as file:
        file.write(line_of(RECORDS[2])[:40])
    recording = read_recording(path)
    assert not recording.is_complete
    assert recording.window == MeasuringWindow(opened=1.0, closed=2.0)
    assert len(recording.requests) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", "is no record of run, request"),
        ('{"record": "song"}', "is no record of run, request"),
        ('{"record": "window", "opened": 1.0}', "closed: Field required"),
        ('{"record": "window", "opened": 1.0, "closed": "soon"}', "closed: Input should be"),
        ('{"record": "window", "opened": 1.0, "closed": NaN}', "closed: Input should be"),
        ('{"record": "window", "opened": 1, "closed": 2, "ajar": 3}', "ajar: Unexpected"),
        ('{"record": "run", "version": 2}', "is of version 2; only 4 is read"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "run.jsonl", RECORDS[0])
    with path.open("a") as file:
        file.write(line + "\n" + line_of(RECORDS[-1]))
    with pytest.raises(LoadTestError, match=r"run\.jsonl, line 2: ") as caught:
        read_recording(path)
    assert reason in str(caught.value)


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError, match="does not begin with the record of a run"):
        read_recording(written(tmp_path / "run.jsonl", RECORDS[-1]))


def test_lines_name_their_record() -> None:
    found = json.loads(line_of(RECORDS[2]))
    assert (found["record"], found["tokens"]) == ("request", [1.3, 1.32])


def test_a_closed_loop_counts_by_ends_and_an_open_one_by_intentions() -> None:
    requests = [
        request_of(0.5, 1.0),
        request_of(0.9, 1.1),
        request_of(1.0, 3.0),
        request_of(2.9, 3.1),
        request_of(3.0, 3.5),
    ]
    window = MeasuringWindow(opened=1.0, closed=3.0)
    closed = Recording(run_of(arrivals={"kind": CLOSED_LOOP}), requests, [], [], window)
    opened = Recording(run_of(arrivals={"kind": "poisson"}), requests, [], [], window)
    assert closed.requests_in_window() == requests[1:3]
    assert opened.requests_in_window() == requests[2:4]
