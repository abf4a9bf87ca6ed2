"""A recording holds a run whole, also one that was killed, and says which line of it is broken."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.records import (
    CLOSED_LOOP,
    OK,
    GeneratorSample,
    Record,
    Recording,
    RecordingError,
    RecordWriter,
    Request,
    Run,
    ServerSample,
    Window,
    counted,
    line_of,
    read_recording,
)


def a_run(kind: str = CLOSED_LOOP, warm_up: float = 1.0) -> Run:
    return Run(
        started_at="2026-01-01T00:00:00Z",
        url="http://127.0.0.1:1/",
        arrivals={"kind": kind},
        work={},
        settings={"warm_up": warm_up},
        objective=None,
        generator={"processes": 1},
    )


def a_request(intended: float = 1.25, end: float = 1.9, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "id": 17,
        "worker": 0,
        "user": None,
        "kind": "greedy",
        "protocol": "completions",
        "model": "llama-en",
        "intended": intended,
        "sent": intended,
        "first_byte": 1.3,
        "tokens": (1.3, 1.32),
        "end": end,
        "outcome": OK,
        "status": 200,
        "detail": "",
        "input_characters": 61,
        "input_words": 11,
        "output_characters": 70,
        "output_words": 12,
        "sentences": 1,
        "output_tokens": 14,
        "prompt_tokens": None,
        "is_expected_error": False,
    }
    return Request(**values | changes)


RECORDS: list[Record] = [
    a_run(),
    ServerSample(time=1.0, metrics={'tokens_total{kind="generated"}': 3.0}),
    a_request(),
    a_request(text="Où est-il ?", outcome="HTTP 500", status=500, detail="no"),
    GeneratorSample(time=2.0, cpu=(0.5, 0.25), lag_ms=0.4),
    Window(opened=1.0, closed=2.5),
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
    assert recording.window == Window(opened=1.0, closed=2.0)
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
        ('{"record": "run", "version": 1}', "is of version 1; only 2 is read"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "run.jsonl", RECORDS[0])
    with path.open("a") as file:
        file.write(line + "\n" + line_of(RECORDS[-1]))
    with pytest.raises(RecordingError, match=r"run\.jsonl, line 2: ") as caught:
        read_recording(path)
    assert reason in str(caught.value)


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not begin with the record of a run"):
        read_recording(written(tmp_path / "run.jsonl", RECORDS[-1]))


def test_lines_name_their_record_and_leave_out_texts_that_are_not_kept() -> None:
    plain, with_text = (json.loads(line_of(record)) for record in RECORDS[2:4])
    assert plain["record"] == "request"
    assert plain["tokens"] == [1.3, 1.32]
    assert "text" not in plain
    assert with_text["text"] == "Où est-il ?"


def test_a_closed_loop_counts_by_ends_and_an_open_one_by_intentions() -> None:
    requests = [
        a_request(intended=0.5, end=1.0),
        a_request(intended=0.9, end=1.1),
        a_request(intended=1.0, end=3.0),
        a_request(intended=2.9, end=3.1),
        a_request(intended=3.0, end=3.5),
    ]
    window = Window(opened=1.0, closed=3.0)
    closed = Recording(a_run(CLOSED_LOOP), requests, [], [], window)
    opened = Recording(a_run("poisson"), requests, [], [], window)
    assert counted(closed) == requests[1:3]
    assert counted(opened) == requests[2:4]
