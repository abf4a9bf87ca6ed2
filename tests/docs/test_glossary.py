"""Every name of the glossary stands in the code: in that of a class, a function or a variable."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("serving", "export", "models", "loadtest")
_ROW = re.compile(r"^\| (?!name \|)([^|`]+) \|", re.MULTILINE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def glossary_names() -> list[str]:
    rows = _ROW.findall((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
    return [name.strip() for row in rows for name in row.split(",")]


def words_of(identifier: str) -> str:
    """Return the words of `RowObserver` or `row_observers` as ` row observer `, without plurals."""
    return f" {' '.join(_singular(word.lower()) for word in _WORD.findall(identifier))} "


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name) | ast.Name(id=name):
                yield name
            case ast.Attribute(attr=name):
                yield name


@cache
def code_words() -> str:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    names = {name for tree in trees for name in identifiers(tree)}
    modules = {path.stem for path in paths} | {path.parent.name for path in paths}
    return "".join(sorted({words_of(name) for name in names | modules}))


def is_used(name: str) -> bool:
    return words_of(name) in code_words()


@pytest.mark.parametrize("name", glossary_names())
def test_the_code_uses_the_name(name: str) -> None:
    assert is_used(name)


def test_other_names_are_not_used() -> None:
    assert "row observer" in glossary_names()
    assert not is_used("observer of rows")
