"""Command lines that files outside of Python hold, read by the command line they are meant for."""

import click

from serving.cli import main


def parsed(words: list[str]) -> click.Context:
    """The context of the subcommand that `words` call; click.UsageError where it refuses them."""
    program, name, *arguments = words
    assert program.rpartition("/")[2] == "attendant"
    context = click.Context(main, info_name="attendant")
    command = main.get_command(context, name)
    assert command is not None, f"attendant has no command {name}"
    return command.make_context(name, arguments, parent=context)
