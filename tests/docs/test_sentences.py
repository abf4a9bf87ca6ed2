"""README, tutorials and every `--help` are written in sentences that are read once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import all_commands
from tests.docs.pages import ROOT
from tests.docs.sentences import num_words, sentences_of_help, sentences_of_page, split

MAX_WORDS = 35
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]


def too_long(sentences: Iterator[str]) -> list[str]:
    return [f"{num_words(each)} words: {each}" for each in sentences if num_words(each) > MAX_WORDS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_short_sentences(page: Path) -> None:
    assert too_long(sentences_of_page(page.read_text(encoding="utf-8"))) == []


def test_helps_have_short_sentences() -> None:
    long = []
    for words, command in all_commands():
        texts = [command.help or "", command.epilog or ""]
        texts += [getattr(param, "help", None) or "" for param in command.params]
        long += [f"{words}: {line}" for text in texts for line in too_long(sentences_of_help(text))]
    assert long == []


def test_a_long_sentence_is_found() -> None:
    long = " ".join(["word"] * MAX_WORDS)
    assert len(too_long(sentences_of_page(f"A {long}.\n\n- A {long}\n- Short. A word."))) == 2
    assert too_long(sentences_of_page(f"```sh\n{long} {long}\n```\n| {long} {long} |\n")) == []
    assert too_long(sentences_of_help(f"Short.\nExamples:\n  {long} {long}")) == []


def test_sentences_end_where_readers_pause() -> None:
    text = "It has `a. B` of 1.5 MB, e.g. this. Run it: `x` does. (See there.) Then? Yes"
    assert list(split(text)) == [
        "It has `code` of 1.5 MB, e.g. this.",
        "Run it: `code` does.",
        "(See there.",
        "Then?",
        "Yes",
    ]
