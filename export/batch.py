"""Run several `attendant export` and `attendant pull` in one process, which imports all once.

`python -m export.batch` reads their command lines, without `attendant`, from standard input, runs
each as soon as it is there, and answers it with an empty line on standard output. The first that
fails ends the program with its status.
"""

import shlex
import sys

from export.cli import export
from export.pull import pull

COMMANDS = {"export": export, "pull": pull}


def main() -> None:
    for line in sys.stdin:
        name, *arguments = shlex.split(line)
        try:
            COMMANDS[name].main(arguments, prog_name=f"attendant {name}")
        except SystemExit as end:  # after every command, also one that succeeded
            if end.code:
                raise
        print(flush=True)


if __name__ == "__main__":
    main()
