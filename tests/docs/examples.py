"""The examples of README, docs and every `--help`, as their readers copy them."""

import inspect
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from textwrap import dedent

import click

from serving.cli import main
from tests.docs.pages import ROOT, all_pages, blocks_of

# What the first word of a line of shell may be, in helps and in blocks without a language.
PROGRAMS = (
    "attendant",
    "curl",
    "docker",
    "echo",
    "helm",
    "kubectl",
    "lm_eval",
    "guidellm",
    "make",
    "pip",
    "printf",
    "pytest",
    "python",
    "PEERS/bin/python",
)
_IS_COMMAND = re.compile(rf"(?:{'|'.join(map(re.escape, PROGRAMS))})\s|export [A-Z_]+=")
_INDENT = "  "


@dataclass(frozen=True)
class Example:
    """A block that readers copy. origin: where it stands. language: as Markdown names it."""

    origin: str
    language: str
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands of a block of shell, each with all of its lines."""
        return commands_in(self.text)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group with the words that call it."""
    yield from _commands_below("attendant", main, click.Context(main, info_name="attendant"))


def _commands_below(
    words: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            inner = click.Context(below, info_name=name, parent=context)
            yield from _commands_below(f"{words} {name}", below, inner)


@cache
def all_examples() -> tuple[Example, ...]:
    return (*_examples_of_pages(), *_examples_of_helps())


def _examples_of_pages() -> Iterator[Example]:
    for page in all_pages():
        name = page.relative_to(ROOT)
        for line, language, text in blocks_of(page.read_text(encoding="utf-8")):
            yield Example(f"{name}:{line}", language, text)


def _examples_of_helps() -> Iterator[Example]:
    """Yield the indented paragraphs below a line that ends with a colon."""
    for words, command in all_commands():
        for number, text in enumerate(_indented(f"{command.help}\n\n{command.epilog or ''}"), 1):
            if language := _language_of(text):
                yield Example(f"{words} --help:{number}", language, text)


def _indented(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\b\n", "")):
        head, _, body = paragraph.partition(":\n")
        if body.startswith(_INDENT):
            yield dedent(body) + "\n"
        elif head.startswith(_INDENT):
            yield dedent(paragraph) + "\n"


def _language_of(text: str) -> str | None:
    """Return the language of an example in a help; None of a list of words with meanings."""
    first = text.splitlines()[0]
    if _IS_COMMAND.match(first):
        return "sh"
    if re.match(r"\w+: ", first):
        return "yaml"
    return "python" if " = " in first or first.startswith("import ") else None


@cache
def commands_in(text: str) -> tuple[str, ...]:
    """Split shell into commands: a line ends one unless bash reads on."""
    commands, lines = list[str](), list[str]()
    for line in text.splitlines():
        lines.append(line)
        command = "\n".join(lines)
        if not line.endswith("\\") and is_shell(command):
            commands.append(command)
            lines = []
    assert not lines, f"no shell: {lines}"
    return tuple(commands)


def is_shell(text: str) -> bool:
    """Return whether bash finds nothing wrong in a text, here-documents included."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    return done.returncode == 0 and not done.stderr


def quoted_commands() -> Iterator[tuple[str, str]]:
    """Yield the commands that pages and helps mention within a line, with where they stand."""
    for page in all_pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            yield from ((f"{page.name}:{number}", text) for text in _quoted(line))
    for words, command in all_commands():
        params = (getattr(param, "help", None) or "" for param in command.params)
        for text in _quoted(" ".join([command.help or "", *params])):
            yield f"{words} --help", text


def _quoted(text: str) -> Iterator[str]:
    for code in re.findall(r"`([^`]+)`", " ".join(text.split())):
        if _IS_COMMAND.match(code):
            yield code.replace("\\|", "|")


def is_command(line: str) -> bool:
    return bool(_IS_COMMAND.match(line))
