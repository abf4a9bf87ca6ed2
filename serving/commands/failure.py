"""How commands say what is wrong."""

import sys
from typing import NoReturn

import click


def fail(message: str) -> NoReturn:
    """Write one clear line each; exit with the code of a mistake."""
    for line in message.splitlines():
        click.echo(f"attendant: {line}", err=True)
    sys.exit(2)
