"""A docstring's first line is a sentence with a verb: it does not begin as a fragment would."""

import ast
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    "export/bundling",
    "export/checking",
    "export/families",
    "export/graph",
    "export/layers",
    "models/architectures",
    "models/configs",
    "models/contract",
    "models/data",
    "models/decoding",
    "models/evaluation",
    "models/layers",
    "models/storage",
    "models/training",
)
PACKAGES = ("serving", "loadtest", "deploy", *ROOMS)
EVERYWHERE = (*PACKAGES, "export", "models", "tests")
FRAGMENTS = {
    *("A", "All", "An", "By", "For", "How", "In", "It", "None", "Of", "So", "Some", "That", "The"),
    *("They", "This", "Those", "What", "Whether", "Which", "Who", "Whose"),
}


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def fragments(source: str, words: Set[str] = FRAGMENTS) -> list[str]:
    return [
        f"line {line}: {text.splitlines()[0]}"
        for line, text in docstrings(source)
        if text.split()[0] in words
    ]


def found_in(package: str, words: Set[str]) -> dict[str, list[str]]:
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    found = {str(path.relative_to(ROOT)): fragments(path.read_text(), words) for path in paths}
    return {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_sentence(package: str) -> None:
    assert found_in(package, FRAGMENTS) == {}


@pytest.mark.parametrize("package", EVERYWHERE)
def test_no_docstring_begins_with_what_it_is_of(package: str) -> None:
    assert found_in(package, {"Of", "Those", "What"}) == {}


def test_a_fragment_is_found() -> None:
    assert fragments('"""Runs graphs."""\n\ndef first() -> int:\n    """The first of all."""') == [
        "line 3: The first of all."
    ]
