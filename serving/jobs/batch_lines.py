"""The lines of a batch's file: one request each, as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LINES = 50_000  # as OpenAI allows in a batch
_MOST_PROBLEMS = 100  # of one file, so that an answer stays readable
_FIELDS = {"custom_id", "method", "url", "body"}


@dataclass(frozen=True, slots=True)
class Line:
    """One request. number: of its line, from 1."""

    number: int
    custom_id: str
    body: dict[str, Any]


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the requests of a checked file."""
    for number, text in _texts(path):
        value = json.loads(text)
        yield Line(number, value["custom_id"], value["body"])


def problems_of(path: Path, endpoint: str) -> tuple[list[dict[str, Any]], int]:
    """Return the problems of the lines of a file, and the number of lines."""
    problems: list[dict[str, Any]] = []
    custom_ids: set[str] = set()
    count = 0
    for number, text in _texts(path):
        count += 1
        if count > MAX_LINES:
            return [_problem(f"a batch has at most {MAX_LINES} lines", None, None)], count
        if (problem := _problem_of(number, text, endpoint, custom_ids)) and len(
            problems
        ) < _MOST_PROBLEMS:
            problems.append(problem)
    if not count:
        problems.append(_problem("the file has no lines", None, None))
    return problems[:_MOST_PROBLEMS], count


def _texts(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, text


def _problem_of(
    number: int, text: bytes, endpoint: str, custom_ids: set[str]
) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _problem(f"is not valid JSON: {error}", number, None)
    if not isinstance(value, dict) or {*value} != _FIELDS:
        return _problem(f"must be an object with {', '.join(sorted(_FIELDS))}", number, None)
    name = value["custom_id"]
    if not isinstance(name, str) or not name or name in custom_ids:
        return _problem("must be a text that no other line has", number, "custom_id")
    custom_ids.add(name)
    if value["method"] != "POST":
        return _problem("must be POST", number, "method")
    if value["url"] != endpoint:
        return _problem(f"must be the batch's endpoint, {endpoint}", number, "url")
    if not isinstance(value["body"], dict):
        return _problem("must be an object", number, "body")
    return None


def _problem(
    message: str, line: int | None, param: str | None, code: str = "invalid_line"
) -> dict[str, Any]:
    text = f"{param}: {message}" if param else message
    return {"code": code, "message": text, "param": param, "line": line}


FILE_IS_GONE = _problem("the file is gone", None, "input_file_id", "file_not_found")
