"""README and docs point to what is there: links, paths, names of the code, commands, metrics."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from serving.observability.engine_metrics import EngineMetrics
from serving.observability.metrics import Metrics
from serving.server_config import TextLimits, WorkerGroup
from tests.docs.examples import all_commands
from tests.docs.pages import ROOT, all_pages, missing_links, missing_paths, quoted, tree_paths

PAGES = [pytest.param(page, id=page.name) for page in all_pages()]
OF_CODE = [
    pytest.param(ROOT / "docs" / name, id=name) for name in ("design.md", "export.md", "request.md")
]
QUOTING = [*OF_CODE, pytest.param(ROOT / "docs" / "luong.md", id="luong.md")]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(missing_links(page, read(page))) == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_are_there(page: Path) -> None:
    assert list(missing_paths(read(page))) == []


def test_the_readme_links_to_all_pages() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in all_pages()[1:]}
    assert names <= {*re.findall(r"docs/[\w/-]+\.md", README)}


def test_what_is_where_is_there_and_short() -> None:
    text = read(ROOT / "docs" / "development.md")
    [section] = re.findall(r"## What is where\n\n```\n(.*?)```", text, re.DOTALL)
    listed = {*tree_paths(section)}
    assert sorted(path for path in listed if not (ROOT / path).exists()) == []
    tops = ("models/", "export/", "serving/", "loadtest/", "deploy/", "docs/", "tests/")
    assert listed.issuperset(tops) and section.count("\n") <= 20


@cache
def names_in(path: Path) -> frozenset[str]:
    """Collect the functions, classes and what is declared in classes, by dotted names."""
    return frozenset(_declared(ast.parse(read(path)).body, ""))


def _declared(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _declared(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id


def names_of_code() -> set[str]:
    packages = ("serving", "export", "models")
    paths = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    return {name for path in paths for name in names_in(path)}


@pytest.mark.parametrize("page", OF_CODE)
def test_names_in_files_are_there(page: Path) -> None:
    references = re.findall(r"`([\w/]+\.py):([\w.]+)`", read(page))
    assert len(references) > 20
    assert [
        f"{file}:{name}" for file, name in references if name not in names_in(ROOT / file)
    ] == []


@pytest.mark.parametrize("page", OF_CODE)
def test_single_names_are_there(page: Path) -> None:
    """Names of classes and members are checked; words in capitals and names of files are not."""
    names = {*re.findall(r"`(_?[A-Z]\w*[a-z]\w*(?:\.\w+)?|_\w+)`", read(page))}
    assert {name for name in names if not name.endswith(".md")} - names_of_code() == set()


@pytest.mark.parametrize("page", QUOTING)
def test_quoted_code_is_that_of_the_file(page: Path) -> None:
    blocks = quoted(read(page), "python")
    assert blocks
    for block in blocks:
        first, *lines = block.splitlines()
        source = [line.strip() for line in read(ROOT / first.removeprefix("# ")).splitlines()]
        assert "\n".join(map(str.strip, lines)) in "\n".join(source)


def test_all_keys_of_the_configuration_are_listed() -> None:
    text = read(ROOT / "docs" / "serving.md")
    section = text.partition("| key of a group |")[2].partition("\n\n")[0]
    assert {*re.findall(r"^\| `(\w+)`", section, re.MULTILINE)} == {*WorkerGroup.model_fields}
    assert all(f"`{name}`" in section for name in TextLimits.model_fields)


def test_all_commands_are_listed() -> None:
    text = read(ROOT / "docs" / "serving.md")
    [table] = re.findall(
        r"^\| command \| what it does \|\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE
    )
    listed = set(re.findall(r"`(attendant(?: [a-z][a-z-]+)+)", table))
    commands = {words for words, command in all_commands() if not isinstance(command, click.Group)}
    assert listed == commands


def test_all_metrics_are_listed() -> None:
    metrics = Metrics("replica")
    EngineMetrics(metrics)
    text = read(ROOT / "docs" / "serving.md")
    listed = {*re.findall(r"^\| `((?:attendant_|vllm:)\w+)`", text, re.MULTILINE)}
    assert listed == {each.name for each in metrics.registry.collect()}


def test_a_broken_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    links = "[a](none.md) [b](#two) [c](#one) [d](https://x.y)"
    text = f"# One\n{links} `serving/none.py` models/*.nothing"
    page.write_text(text)
    assert list(missing_links(page, text)) == ["none.md", "#two"]
    assert list(missing_paths(text)) == ["serving/none.py", "models/*.nothing"]


def test_a_tree_is_read() -> None:
    tree = "a/     one\n  b/    two\n    c.py d.py    three\n  e/    four\nf/    five\n"
    assert list(tree_paths(tree)) == ["a/", "a/b/", "a/b/c.py", "a/b/d.py", "a/e/", "f/"]
