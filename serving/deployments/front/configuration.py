"""Writes HAProxy's configuration, once for a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from serving.deployments.front.certificate import certificate_in
from serving.deployments.listening import Listening, joined
from serving.server_config import Tls

_OPERATORS = 64  # connections at a time of those who ask for /health, /ready and /metrics
_OTHER_CONNECTIONS = 64  # of our own to HAProxy
_MOST_AT_ONCE = 512  # requests in one replica: it looks at each within a quarter of a second
_RETRY_SECONDS = 5  # about as long as a replica takes to start
_TELLS_HTTPS = "http-request set-header x-forwarded-proto https"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Served:
    """Says how HAProxy knows the replicas of one worker group.

    application: its name in Ray Serve, which no other run on this machine uses.
    prefix: of its paths, without a slash at its end; empty at the root.
    canary_percent: of the requests to the root it gets so many.
    """

    name: str
    application: str
    prefix: str
    canary_percent: int = 0


@dataclass(frozen=True)
class Front:
    """Says where HAProxy listens, for how many, and where it looks for replicas.

    operations: where /health, /ready and /metrics answer whatever the load.
    metrics_port: where HAProxy tells its own metrics, to this machine.
    tls: None speaks plain HTTP to clients.
    """

    public: Listening
    operations: Listening
    connections: int
    threads: int
    ports: range
    metrics_port: int
    groups: Sequence[Served]
    tls: Tls | None = None

    @property
    def applications(self) -> list[str]:
        return [group.application for group in self.groups]


def configuration(front: Front, folder: Path, is_stopping: bool) -> str:
    """Return HAProxy's configuration. folder: where its files are."""
    groups = sorted(front.groups, key=lambda group: len(group.prefix), reverse=True)
    text = _template("haproxy.cfg").substitute(
        all_connections=front.connections + 2 * _OPERATORS + _OTHER_CONNECTIONS,
        connections=front.connections,
        operators=_OPERATORS,
        threads=front.threads,
        socket=socket_in(folder),
        stopping=str(is_stopping).lower(),
        retry_seconds=_RETRY_SECONDS,
        public=_bind(front.public) + (f" ssl crt {certificate_in(folder)}" if front.tls else ""),
        tells_scheme=_TELLS_HTTPS if front.tls else "",
        operations=_bind(front.operations),
        metrics_port=front.metrics_port,
        canaries="\n".join(_canaries(front.groups)),
        routes="\n".join(map(_route, groups)),
    )
    return text + "".join(_backend(group, front.ports) for group in groups) + _watched(front)


def socket_in(folder: Path) -> Path:
    """Return where HAProxy takes commands."""
    return folder / "haproxy.sock"


def _canaries(groups: Sequence[Served]) -> Iterator[str]:
    """Yield rules that send parts of what comes to the root on to other groups."""
    below = 0
    for group in groups:
        if group.canary_percent:
            drawn = f"{{ var(txn.drawn) -m int {below}:{below + group.canary_percent - 1} }}"
            is_there = f"{{ nbsrv({_backend_name(group)}) gt 0 }}"
            rule = f"set-path {group.prefix}%[path] if !is_elsewhere {drawn} {is_there}"
            yield f"    http-request {rule}"
            below += group.canary_percent


def _route(group: Served) -> str:
    name = _backend_name(group)
    if not group.prefix:
        return f"    default_backend {name}"
    return f"    use_backend {name} if {{ path_beg {group.prefix}/ }} || {{ path {group.prefix} }}"


def _backend(group: Served, ports: range) -> str:
    text = _template("backend.cfg").substitute(
        name=_backend_name(group),
        application=group.application,
        prefix=group.prefix,
        most_at_once=_MOST_AT_ONCE,
        most_waiting=_MOST_AT_ONCE // 2,
    )
    servers = [f"    server port-{port} 127.0.0.1:{port}\n" for port in ports]
    return text + "".join(servers)


def _watched(front: Front) -> str:
    """Write the replicas at `/` down once more, for questions that wait for no other."""
    name = _backend_name(front.groups[0])
    servers = [
        f"    server port-{port} 127.0.0.1:{port} track {name}/port-{port}\n"
        for port in front.ports
    ]
    return "\nbackend watched\n" + "".join(servers)


def _backend_name(group: Served) -> str:
    return f"group-{group.name}"


def _bind(listening: Listening) -> str:
    """HAProxy's words for it."""
    place = joined(listening.address, listening.port)
    return f"{place} v4v6" if listening.address == "::" else place


def _template(name: str) -> Template:
    return Template((_HERE / name).read_text(encoding="utf-8"))
