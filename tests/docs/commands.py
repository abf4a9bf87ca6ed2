"""Command lines that files outside of Python hold, read by the command line they are meant for."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile

import click

from serving.cli import main

_PUNCTUATION = re.compile(r"[();<>|&]+")


def parsed(words: list[str]) -> click.Context:
    """The context of the command that `words` call; click.UsageError where it refuses them."""
    program, *arguments = words
    assert program.rpartition("/")[2] == "attendant"
    command: click.Command = main
    context = click.Context(main, info_name="attendant")
    while isinstance(command, click.Group) and arguments:
        name, *arguments = arguments
        below = command.get_command(context, name)
        assert below is not None, f"{context.command_path} has no command {name}"
        if not isinstance(below, click.Group):
            return below.make_context(name, arguments, parent=context)
        command, context = below, click.Context(below, info_name=name, parent=context)
    return context


def invocations(shell: str) -> Iterator[list[str]]:
    """Yield the words of each call of attendant in shell, without redirections."""
    lexer = shlex.shlex(shell.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = [*lexer]
    for place, (word, following) in enumerate(zip(words, [*words[1:], ""], strict=True)):
        if word == "attendant" and re.fullmatch(r"[a-z][a-z-]*", following):
            yield [*takewhile(lambda word: not _PUNCTUATION.fullmatch(word), words[place:])]
