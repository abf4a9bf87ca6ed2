"""Write HAProxy's configuration and its certificate file, for one run."""

import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Literal

from serving.deployments.listening import Listening, join_address
from serving.errors import ConfigError
from serving.server_config import Tls

Phase = Literal["starting", "serving", "stopping"]  # requests are admitted while it is serving
_OPERATORS = 64  # connections at once to /health, /ready and /metrics
_OTHER_CONNECTIONS = 64  # our own, to HAProxy
_RETRY_SECONDS = 5  # about as long as a replica takes to start
_SET_HTTPS = "http-request set-header x-forwarded-proto https"
_HERE = Path(__file__).parent
_FILE = "certificate.pem"
_MISMATCH = "KEY_VALUES_MISMATCH"


@dataclass(frozen=True)
class ServedGroup:
    """How HAProxy finds the replicas of one worker group.

    application: its name in Ray Serve, which no other run on this machine uses.
    prefix: the beginning of its paths, without a slash at its end; empty at the root.
    canary_percent: how many of the requests to the root it gets.
    most_at_once: requests in one replica. Half as many wait here for it; others are refused.
    """

    name: str
    application: str
    prefix: str
    canary_percent: int = 0
    most_at_once: int = 256


@dataclass(frozen=True)
class Front:
    """Where HAProxy listens, for how many connections, and where it looks for replicas.

    operations: the address where /health, /ready and /metrics answer under any load.
    metrics_port: where HAProxy reports its own metrics, to this machine only.
    tls: None for plain HTTP.
    """

    public: Listening
    operations: Listening
    connections: int
    threads: int
    ports: range
    metrics_port: int
    groups: Sequence[ServedGroup]
    tls: Tls | None = None

    @property
    def applications(self) -> list[str]:
        return [group.application for group in self.groups]


def configuration(front: Front, folder: Path, phase: Phase) -> str:
    """Return HAProxy's configuration. folder: for its files."""
    groups = sorted(front.groups, key=lambda group: len(group.prefix), reverse=True)
    text = _template("haproxy.cfg").substitute(
        all_connections=front.connections + 2 * _OPERATORS + _OTHER_CONNECTIONS,
        connections=front.connections,
        operators=_OPERATORS,
        threads=front.threads,
        socket=socket_in(folder),
        phase=phase,
        retry_seconds=_RETRY_SECONDS,
        public=_bind(front.public) + (f" ssl crt {certificate_in(folder)}" if front.tls else ""),
        set_scheme=_SET_HTTPS if front.tls else "",
        operations=_bind(front.operations),
        metrics_port=front.metrics_port,
        canaries="\n".join(_canaries(front.groups)),
        routes="\n".join(map(_route, groups)),
    )
    return text + "".join(_backend(group, front.ports) for group in groups) + _watched_files(front)


def socket_in(folder: Path) -> Path:
    """Return the path of the socket on which HAProxy takes commands."""
    return folder / "haproxy.sock"


def _canaries(groups: Sequence[ServedGroup]) -> Iterator[str]:
    """Yield rules that send a part of the requests to the root to canary groups."""
    below = 0
    for group in groups:
        if group.canary_percent:
            drawn = f"{{ var(txn.drawn) -m int {below}:{below + group.canary_percent - 1} }}"
            is_there = f"{{ nbsrv({backend_name(group)}) gt 0 }}"
            rule = f"set-path {group.prefix}%[path] if !is_elsewhere {drawn} {is_there}"
            yield f"    http-request {rule}"
            below += group.canary_percent


def _route(group: ServedGroup) -> str:
    name = backend_name(group)
    if not group.prefix:
        return f"    default_backend {name}"
    return f"    use_backend {name} if {{ path_beg {group.prefix}/ }} || {{ path {group.prefix} }}"


def _backend(group: ServedGroup, ports: range) -> str:
    text = _template("backend.cfg").substitute(
        name=backend_name(group),
        application=group.application,
        prefix=group.prefix,
        most_at_once=group.most_at_once,
        most_waiting=group.most_at_once // 2,
    )
    servers = [f"    server port-{port} 127.0.0.1:{port}\n" for port in ports]
    return text + "".join(servers)


def _watched_files(front: Front) -> str:
    """Return a second backend of the replicas at `/`, whose requests do not wait behind others."""
    name = backend_name(front.groups[0])
    servers = [
        f"    server port-{port} 127.0.0.1:{port} track {name}/port-{port}\n"
        for port in front.ports
    ]
    return "\nbackend watched\n" + "".join(servers)


def backend_name(group: ServedGroup) -> str:
    """Return the name of HAProxy's backend of a group."""
    return f"group-{group.name}"


def _bind(listening: Listening) -> str:
    """Return the arguments of HAProxy's `bind`."""
    place = join_address(listening.address, listening.port)
    return f"{place} v4v6" if listening.address == "::" else place


def _template(name: str) -> Template:
    return Template((_HERE / name).read_text(encoding="utf-8"))


class Certificate:
    """The certificate files that a user renews, and HAProxy's copy of them in the run folder."""

    def __init__(self, tls: Tls, folder: Path) -> None:
        self.path = certificate_in(folder)
        self._tls = tls
        self._state = self._read_state()

    def write(self) -> None:
        """Write HAProxy's copy. Raises ConfigError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(read_certificate(self._tls))

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last call."""
        before, self._state = self._state, self._read_state()
        return self._state != before

    def _read_state(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in (self._tls.certificate, self._tls.key)]


def certificate_in(folder: Path) -> Path:
    return folder / _FILE


def read_certificate(tls: Tls) -> str:
    """Return the certificate, its chain and the key, as PEM without empty lines.

    Raises ConfigError for files that cannot be read or do not belong together.
    """
    texts = [_read(path) for path in (tls.certificate, tls.key)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == _MISMATCH:
            raise ConfigError(tls.key, [f"is not the key of {tls.certificate}"]) from None
        problem = f"not a certificate in PEM whose key {tls.key} is ({error.reason})"
        raise ConfigError(tls.certificate, [problem]) from None
    lines = (line for text in texts for line in text.splitlines() if line.strip())
    return "\n".join(lines) + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except UnicodeDecodeError:
        raise ConfigError(path, ["not PEM"]) from None


def _no_password() -> str:
    """Return an empty password, so that an encrypted key fails instead of asking for one."""
    return ""


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
