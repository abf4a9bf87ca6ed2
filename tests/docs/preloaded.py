"""Runs `attendant` commands in forks of one process that has imported everything: a command takes a
tenth of a second instead of two, and has the standard streams, folder and environment of its
caller. `attendant serve` ends where Ray would start.

`python -m tests.docs.preloaded SOCKET` listens until it is ended; `write_command` writes the
command that asks it.
"""

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

DEFAULTS = "ATTENDANT_EXAMPLE_DEFAULTS"  # JSON: defaults of options, as click's default_map
_PRELOADED = (
    "export.bundling.writer",
    "export.readers.reading",
    "serving.deployments.start_checks",
    "serving.engine.runtime.session",
    "serving.pipelines.loading",
)
_STREAMS = (0, 1, 2)
_MAX_BYTES = 1 << 20
_COMMAND = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    call = [sys.argv[1:], os.getcwd(), dict(os.environ)]
    socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2])
    sys.exit(int(server.recv(16) or 70))
"""


def write_command(path: Path, socket_path: Path) -> None:
    """Write a program that has its arguments run by the process that listens at a socket."""
    path.write_text(_COMMAND.format(python=sys.executable, socket=str(socket_path)))
    path.chmod(0o755)


def main(path: str) -> None:
    """Import what commands import, then serve calls at a socket."""
    import serving.app
    import serving.cli

    for name in _PRELOADED:
        import_module(name)

    def announce(config: Any, *_: Any) -> None:
        print(f"would serve on port {config.port}", file=sys.stderr)
        if config.access.operators:
            time.sleep(2)  # until a server that runs has seen that its file of keys has changed

    serving.app.run = announce  # type: ignore[assignment]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                child = os.fork()
                if child == 0:
                    if os.fork() == 0:  # for which nobody waits: several may run at a time
                        _answer(connection, serving.cli.main)
                    os._exit(0)
                os.waitpid(child, 0)


def _answer(connection: socket.socket, run: Callable[..., Any]) -> None:
    """Run one command in a fork and send its exit code."""
    data, streams, *_ = socket.recv_fds(connection, _MAX_BYTES, len(_STREAMS))
    command = os.fork()
    if command == 0:
        arguments, folder, environment = json.loads(data)
        _run(run, arguments, folder, environment, streams)
    _, status = os.waitpid(command, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _run(
    run: Callable[..., Any],
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    streams: list[int],
) -> None:
    code = 70
    try:
        for stream, number in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False)
            for number, mode in zip(_STREAMS, ("r", "w", "w"), strict=True)
        )
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        defaults = json.loads(environment.get(DEFAULTS, "{}"))
        run(arguments, prog_name="attendant", default_map=defaults)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
