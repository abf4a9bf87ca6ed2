"""Markdown: text is translated, marks and directives are kept, and what is read again has the same
structure.
"""

import random
import re
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from serving.documents.formats.registry import read_document
from tests.serving.documents.formats import directive_files, markdown_files
from tests.serving.documents.shouting import shout_file

CASES = markdown_files.CASES | directive_files.CASES


def parsed(text: str) -> list[str]:
    """The types of all tokens that a Markdown parser finds, without text."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    front = re.compile(r"\A(---|\+\+\+)\n.*?^\1\n", re.DOTALL | re.M)
    tokens = parser.parse(front.sub("", text))
    every = [inner for token in tokens for inner in (token, *(token.children or ()))]
    return [token.type for token in every if token.type not in ("text", "softbreak")]


@pytest.mark.parametrize("name", CASES)
def test_documents(tmp_path: Path, name: str) -> None:
    source, expected = (text.lstrip("\n") for text in CASES[name])
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")

    shout_file(path, target)

    written = target.read_text("utf-8")
    assert written == expected
    assert parsed(written) == parsed(source)


def test_html_that_is_a_block_by_its_first_line_alone(tmp_path: Path) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text("<b>\nkept as it is\n\ntext\n", encoding="utf-8")

    shout_file(path, target)

    assert target.read_text("utf-8") == "<b>\nkept as it is\n\nTEXT\n"


SIGNS = (
    "1. ",
    "# ",
    "- ",
    "* ",
    "> ",
    "*",
    "_",
    "`",
    "[x](y)",
    "~~",
    "|",
    "$",
    "=== ",
    ": ",
    "!",
    "&lt;",
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_what_a_translation_brings_along_is_no_mark(tmp_path: Path, name: str, seed: int) -> None:
    """Signs of Markdown in a translation change nothing in how it is read."""
    source = CASES[name][0].lstrip("\n")
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")
    document = read_document(path, path.name)
    pick = random.Random(seed)

    translations = [
        pick.choice(SIGNS) + fragment + pick.choice(SIGNS) for fragment in document.fragments
    ]
    document.write(translations, target, "fr")

    assert parsed(target.read_text("utf-8")) == parsed(source)


@pytest.mark.parametrize(
    "title", ["yes", "a: b", "[x]", "- y", "'q", "é # x", '"w"', "2026", "{a}"]
)
@pytest.mark.parametrize("value", ["a day", "'a day'", '"a day"'])
def test_front_matter_stays_yaml(tmp_path: Path, value: str, title: str) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(f"---\ntitle: {value}\ntags: [a]\n---\n", encoding="utf-8")
    document = read_document(path, path.name)
    assert [*document.fragments] == ["a day"]

    document.write([title], target, "fr")

    front = target.read_text("utf-8").split("---")[1]
    assert yaml.safe_load(front) == {"title": title, "tags": ["a"]}


@pytest.mark.parametrize("seed", range(200))
def test_documents_of_any_pieces(tmp_path: Path, seed: int) -> None:
    """However broken: nothing fails, and the structure stays."""
    pick = random.Random(seed)
    lines = [line for source, _ in CASES.values() for line in source.split("\n")]
    source = "\n".join(pick.choice(lines) for _ in range(pick.randint(1, 30)))
    if pick.random() < 0.5:
        source = source[pick.randint(0, len(source) // 2) :]
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")

    shout_file(path, target)

    assert parsed(target.read_text("utf-8")) == parsed(source)


def test_comments_of_mdx_within_a_text(tmp_path: Path) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text("we {/* kept */} go\n")

    shout_file(path, target)

    assert target.read_text() == "WE {/* kept */} GO\n"
