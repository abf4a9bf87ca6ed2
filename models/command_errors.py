"""How commands of models and export end when they cannot go on: a message and status 2 where the
user can mend it; a traceback where it is a bug of ours.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from models.errors import InputError

BUG = "This is a bug of Attendant, not of your files. Please report it with all of these lines."


def fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)


@contextmanager
def reported_errors(activity: str, extras: str = "train") -> Iterator[None]:
    """Report errors that the user can mend: missing packages, files, and errors with `problems`.
    The traceback of any other ends by asking for a report.

    activity: begins the message that a package is missing, which `extras` of ours would bring.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{activity} needs {error.name}: pip install 'attendant-server[{extras}]'")
    except Exception as error:
        problems = getattr(error, "problems", None)
        if problems is not None:
            path = getattr(error, "path", None)
            heading = [f"{path} cannot be used:"] if path else []
            fail(*heading, *(f"  {problem}" for problem in problems))
        if isinstance(error, OSError) and error.filename:
            fail(f"{error.filename}: {error.strerror}")
        if isinstance(error, OSError | InputError):
            fail(str(error))
        error.add_note(BUG)
        raise
