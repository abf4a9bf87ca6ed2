"""`attendant serve`: bundles over HTTP."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from serving.bundle.folders import explain_missing_manifest
from serving.commands.bundles import get_bundle
from serving.commands.failure import fail
from serving.errors import PartEnded
from serving.storage.opening import STATE_VARIABLE

if TYPE_CHECKING:
    from serving.deployments.haproxy_config import Front
    from serving.server_config import ServerConfig


_BUILD_KERNELS = "python -m serving.kernels.build"
A_PART_ENDED = 3  # exit code: nothing is wrong with what was asked for; start it again
OF_THE_SERVER = ("host", "port", "operations_port", "state")
OF_TLS = {"tls_certificate": "certificate", "tls_key": "key"}
OF_A_GROUP = ("replicas", "device", "engines", "threads")
# Flags and what the configuration calls them.
OF_ACCESS = {"keys": "keys", "operators": "operators", "access_log": "log"}


def _reject_state_dir(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("--state-dir is called --state now", context)


@click.command()
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML file with host, port and groups, instead of bundles.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 is any free one.  [default: 8000]",
)
@click.option(
    "--operations-port",
    type=click.IntRange(0, 65535),
    help="Port of /health, /ready and /metrics, which answer under any load."
    "  [default: the one after PORT]",
)
@click.option("--replicas", type=click.IntRange(1), help="Processes, each with all bundles.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Where models run; auto is cuda for bundles made for it, where there is a GPU."
    "  [default: auto]",
)
@click.option(
    "--engines",
    type=click.IntRange(1),
    help="Engines per model in each replica.  [default: measured]",
)
@click.option("--threads", type=click.IntRange(1), help="Threads per engine.  [default: measured]")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the keys that clients must send; `attendant keys` writes it.",
)
@click.option(
    "--operators",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of keys that may load and unload models while the server runs.",
)
@click.option(
    "--tls-certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Use TLS, with this certificate and the chain after it in the file, in PEM.",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Private key of the certificate, in PEM.",
)
@click.option(
    "--access-log",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write a line of JSON for each request, without its text; - is the console.",
)
@click.option(
    "--state",
    metavar="PLACE",
    envvar=STATE_VARIABLE,
    help="Where to store what survives a restart, such as documents in progress: a folder, or"
    " postgresql://USER@HOST/DATABASE, a database that servers on several machines share. Put a"
    f" URL with a password into the environment variable {STATE_VARIABLE}: other users of this"
    " machine can read command lines.  [default: $XDG_STATE_HOME/attendant or"
    " ~/.local/state/attendant]",
)
@click.option("--state-dir", hidden=True, expose_value=False, callback=_reject_state_dir)
def serve(bundles: tuple[Path, ...], config: Path | None, **flags: Any) -> None:
    """Serve BUNDLES over HTTP until interrupted.

    A BUNDLE is a folder, or the name of a model: of a bundle of `attendant list`, or one that
    `attendant pull` knows, which is then pulled first (firefox/en-fr, OWNER/MODEL).

    How many engines a model has, and how many threads each, is measured at its first start, which
    takes about half a second, and kept for later ones. A request that names no model gets the one
    whose measured quality is best for its languages, else one for general text, else the first;
    `default` in a configuration names another.

    \b
    Examples:
      attendant serve firefox/en-fr
      attendant serve build/bundles/transformer-en-fr-int8
      attendant serve build/bundles/* --host 0.0.0.0 --port 8080 --replicas 2
      attendant serve --config server.yaml

    \b
    Then, from another terminal:
      curl localhost:8000/translate -d q='A dog runs.' -d source=en -d target=fr

    \b
    A server.yaml for two groups of models:
      port: 8000
      groups:
        - {name: translation, bundles: [build/bundles/transformer-en-fr-int8], replicas: 2}
        - {name: prose, bundles: [build/bundles/llama-en-int8], cpus_per_replica: 2}
    """
    from serving.deployments.stop_signals import STOP_SIGNALS, Stopped

    # The first process of a container is sent no signal that it has not asked for.
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _leave(128 + number))
    from serving.deployments.progress import StartProgress
    from serving.deployments.start_checks import (
        address_problems,
        choices,
        problems_at_start,
        resolve_groups,
        state_problems,
    )

    server_config = _server_config(bundles, config, flags)
    progress = StartProgress()
    try:
        problems = (
            list(address_problems(server_config))
            or problems_at_start(server_config)
            or list(state_problems(server_config.state, progress))  # last: it may wait
        )
    except PartEnded as error:
        _leave_to_start_again(error)
    if problems:
        fail("\n".join(problems))
    server_config = resolve_groups(server_config)
    from serving.app import run
    from serving.deployments.environment import MAX_CONNECTIONS, allowed_connections

    connections = allowed_connections()
    progress.write_line("Starting ...")
    for choice in choices(server_config):
        progress.write_line(choice)
    if connections < MAX_CONNECTIONS:
        limited = f"At most {connections} connections at a time: few open files are allowed"
        progress.write_line(f"{limited} (ulimit -Hn)")
    runs_on_cpu = any(group.device == "cpu" for group in server_config.groups)
    if runs_on_cpu and (note := note_on_kernels()):
        progress.write_line(note)
    try:
        run(server_config, _announce, progress)
    except PartEnded as error:
        _leave_to_start_again(error)
    except Stopped as stop:  # before it served
        _leave(128 + stop.number)
    _leave(0)


def note_on_kernels() -> str | None:
    """Return what models lose here without native kernels, and how to get them; None if there are
    some.
    """
    from serving.engine.runtime.machine import instruction_sets
    from serving.kernels.library import LIBRARY, why_missing

    if (reason := why_missing()) is None:
        return None
    if not {"avx2", "asimd"}.intersection(instruction_sets()):
        return "No native kernels: there are some for x86-64 with AVX2 and for 64-bit Arm only"
    advice = "" if LIBRARY.is_file() else f"; `{_BUILD_KERNELS}` builds them"
    return f"No native kernels, models take 2 to 3 times as long on the CPU: {reason}{advice}"


def _announce(front: "Front") -> None:
    with suppress(OSError):  # nobody reads it
        click.echo(f"Health and metrics, whatever the load, on {front.operations}", err=True)
        click.echo(f"Serving on {front.public} (Ctrl-C stops)", err=True)


def _leave_to_start_again(error: PartEnded) -> NoReturn:
    click.echo(f"attendant: {error}", err=True)
    _leave(A_PART_ENDED)


def _leave(code: int) -> NoReturn:
    """Exit without what Ray does at the end: it waits for a Ray that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _without_files(bundles: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths that are no plain files, and name the others: FOLDER/* has logs and notes,
    which must not keep the bundles beside them from being served. Raises UsageError if all are.
    """
    files = [path for path in bundles if path.is_file()]
    if len(files) == len(bundles):
        raise click.UsageError(f"{files[0]}: {explain_missing_manifest(files[0])}")
    for path in files:
        click.echo(f"{path}: not served, it is a file and no bundle", err=True)
    return tuple(path for path in bundles if path not in files)


def _server_config(
    bundles: tuple[Path, ...], path: Path | None, flags: dict[str, Any]
) -> "ServerConfig":
    from serving.server_config import Tls, parse_config, read_config

    options = {name: value for name, value in flags.items() if value is not None}
    server: dict[str, Any] = {name: options[name] for name in OF_THE_SERVER if name in options}
    access = {name: options.pop(flag) for flag, name in OF_ACCESS.items() if flag in options}
    tls = {name: options.pop(flag) for flag, name in OF_TLS.items() if flag in options}
    if len(tls) == 1:
        raise click.UsageError("--tls-certificate and --tls-key need each other")
    if path is not None:
        if bundles or options.keys() - server.keys():
            raise click.UsageError("--config says which bundles run where; give it alone")
        config = read_config(path)
        server["access"] = config.access.model_copy(update=access)
        server["tls"] = Tls.model_validate(tls) if tls else config.tls
        return config.model_copy(update=server)
    if not bundles:
        raise click.UsageError("give at least one BUNDLE, or --config FILE")
    bundles = _without_files(bundles)
    bundles = tuple(get_bundle(bundle, options.get("device")) for bundle in bundles)
    group = {name: options[name] for name in OF_A_GROUP if name in options}
    groups = [{**group, "bundles": bundles}]
    server |= {"access": access, "tls": tls or None, "groups": groups}
    return parse_config("attendant serve", server)
