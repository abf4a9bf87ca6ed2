"""Finds what readers are shown of the front matter of a Markdown file: its title and the like."""

import json
import re
from collections.abc import Iterator
from functools import partial

import yaml

from serving.documents.parts.spans import Span

FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)
_SHOWN = "caption|description|excerpt|lead|linkTitle|sidebar_label|subtitle|summary|tagline|title"
_VALUE = re.compile(
    rf"^(?:{_SHOWN})[ \t]*(?P<is>[:=])[ \t]*(?:\"(?P<double>(?:\\.|[^\"\\\n])*)\""
    r"|'(?P<single>(?:''|[^'\n])*)'|(?P<bare>[^\s\"'|>&*!%@`\[{#][^\n]*?))[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE,
)


def front_matter_spans(text: str) -> Iterator[Span]:
    front = FRONT_MATTER.match(text)
    for found in _VALUE.finditer(text, 0, front.end() if front else 0):
        kind = next(each for each in ("double", "single", "bare") if found[each] is not None)
        start, end = found.span(kind)
        value = _read(found[kind], kind, found["is"] == ":")
        if value is not None and _goes_on_alone(text, found.end()):
            yield Span(start, end, [value], partial(_written, kind))


def _goes_on_alone(text: str, end: int) -> bool:
    """Check that a value does not go on in the next line, indented."""
    return re.match(r"\r?\n[ \t]+\S", text[end : end + 200]) is None


def _read(raw: str, kind: str, is_yaml: bool) -> str | None:
    """Return the value that is meant, if it is a text."""
    if kind == "bare" and not is_yaml:
        return None  # of TOML, no text
    quoted = {"double": f'"{raw}"', "single": f"'{raw}'", "bare": raw}[kind]
    try:
        value = yaml.safe_load(quoted)
    except yaml.YAMLError:
        return None
    return value if isinstance(value, str) else None


def _written(kind: str, text: str) -> str:
    if kind == "double":
        return json.dumps(text, ensure_ascii=False)[1:-1]
    if kind == "single":
        return text.replace("'", "''")
    return text if _is_plain(text) else json.dumps(text, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """Check that a text means itself where it stands without quotes."""
    try:
        return bool(yaml.safe_load(f"a: {text}") == {"a": text})
    except yaml.YAMLError:
        return False
