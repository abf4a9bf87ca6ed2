"""How commands of models and export end when they cannot go on: a message, and status 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click


def fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)


@contextmanager
def reported_errors(activity: str, extras: str = "train") -> Iterator[None]:
    """Report errors that the user can mend: missing packages, files, and errors with `problems`.

    activity: begins the message that a package is missing, which `extras` of ours would bring.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{activity} needs {error.name}: pip install 'attendant[{extras}]'")
    except (OSError, ValueError) as error:
        fail(str(error))
    except Exception as error:
        problems = getattr(error, "problems", None)
        if problems is None:
            raise
        path = getattr(error, "path", None)
        heading = [f"{path} cannot be used:"] if path else []
        fail(*heading, *(f"  {problem}" for problem in problems))
