"""The messages that the page of questions lists are those of the code."""

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "faq.md"
PACKAGES = ("serving", "export", "deploy")
# What the system says, within messages of ours.
OF_THE_SYSTEM = {"Address already in use"}
MIN_CHARACTERS = 6


def messages() -> list[str]:
    """Return the code in the column of messages of each table."""
    column, rows = 0, []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if "message" in cells:
            column = cells.index("message")
        elif cells and not cells[0].startswith("---"):
            rows += re.findall(r"`([^`]+)`", cells[column])
    return rows


@cache
def texts_of_code() -> str:
    """Return all string constants of the packages, a line each; `…` stands for a field."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return "\n".join(value for value in constants if isinstance(value, str))


def unknown_parts(message: str) -> list[str]:
    """Return the parts of a message between its fields that stand nowhere in the code."""
    parts = re.split("…|; |: |, (?:but)?", message)
    return [
        part
        for part in map(str.strip, parts)
        if len(part) >= MIN_CHARACTERS and part not in OF_THE_SYSTEM and part not in texts_of_code()
    ]


@pytest.mark.parametrize("message", messages())
def test_listed_messages_are_those_of_the_code(message: str) -> None:
    assert unknown_parts(message) == []


def test_there_are_messages_of_each_kind() -> None:
    assert len(messages()) > 25


def test_another_message_is_found() -> None:
    assert unknown_parts("the server has eaten …") == ["the server has eaten"]
