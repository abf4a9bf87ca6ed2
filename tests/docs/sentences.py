"""Splits pages and help texts into sentences, without code and tables."""

import inspect
import re
from collections.abc import Iterator

from tests.docs.pages import blocks_of

_PARAGRAPH_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\bal\.)(?<!\.\.\.)[)*\"”]*\s+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def sentences_of_page(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown; a list item or a heading ends one."""
    for _, language, block in blocks_of(text):
        text = text.replace(f"```{language}\n{block}```", "")
    for paragraph in _PARAGRAPH_END.split(text):
        if not paragraph.lstrip().startswith(("|", "#", "<!--")):
            yield from split(_LINK.sub(r"\1", paragraph))


def sentences_of_help(text: str) -> Iterator[str]:
    """Yield the sentences of the help of a command or an option; its indented lines are code."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\b\n", "")):
        lines = [line for line in paragraph.splitlines() if not line.startswith("  ")]
        yield from split("\n".join(lines))


def split(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, each with its spaces made single."""
    text = re.sub(r"`[^`]*`", "`code`", " ".join(paragraph.split()))
    yield from filter(None, _SENTENCE_END.split(text))


def num_words(sentence: str) -> int:
    return len(re.findall(r"\w[\w'’.,/-]*", sentence))
