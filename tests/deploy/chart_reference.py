"""The values of the chart with their descriptions, which are the comments of values.yaml.

`python -m tests.deploy.chart_reference` writes them to README.md and values.schema.json there.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.deploy.rendered import ROOT

CHART = ROOT / "deploy/helm"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>\w+):")
_TABLE = re.compile(r"^\| value \|.*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Value:
    """A value of the chart. name: with dots, such as `image.tag`."""

    name: str
    description: str
    default: Any


def described_values() -> Iterator[Value]:
    """Yield the values of values.yaml that have a comment above them, in their order."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)
    section = ""
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("# "):
            comment.append(line.lstrip().removeprefix("# "))
            continue
        match = _KEY.match(line)
        if match and not match["indent"]:
            section = match["key"]
        if match and comment:
            name = f"{section}.{match['key']}" if match["indent"] else section
            yield Value(name, " ".join(comment), _lookup(defaults, name))
        comment = []


def _lookup(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values


def write_table() -> str:
    """Return the table of README.md."""
    rows = [
        f"| `{value.name}` | {_write_default(value)} | {value.description} |"
        for value in described_values()
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def _write_default(value: Value) -> str:
    if value.name == "server":
        return "see values.yaml"
    return "" if value.default in ("", [], {}) else f"`{json.dumps(value.default)}`"


def read_table() -> str:
    """Return the table that README.md has."""
    match = _TABLE.search(README.read_text(encoding="utf-8"))
    assert match
    return match[0].rstrip()


def find_property(schema: Any, name: str) -> Any:
    """Return the schema of a value. Raise KeyError if there is none."""
    for part in name.split("."):
        schema = schema["properties"][part]
    return schema


def main() -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(text.replace(read_table(), write_table()), encoding="utf-8")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for value in described_values():
        find_property(schema, value.name)["description"] = value.description
    SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
