"""`attendant deploy`: brings a configuration to a Ray cluster, and tries a running server."""

import sys
from pathlib import Path
from typing import TextIO

import click
import yaml

from deploy import ray
from deploy.smoke import checks_of
from serving.server_config import parse_file

config_option = click.option(
    "-c",
    "--config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The server's YAML file.",
)


@click.group()
def deploy() -> None:
    """Deploy to a Ray cluster, or try a server that runs anywhere.

    \b
    Replicas on several nodes need state that all share: a `state` of the configuration, or the
    variable ATTENDANT_STATE of every node, with the URL of a PostgreSQL (postgresql://...).
    Requests go on while the head of the cluster is away. It comes back with what was deployed where
    it was started with RAY_REDIS_ADDRESS, the address of a Redis; without, apply again.
    """


@deploy.command("serve-config")
@config_option
def serve_config(config: Path) -> None:
    """Print the configuration that Ray Serve takes, for `serve deploy` or a RayService.

    \b
    Example:
      attendant deploy serve-config -c deploy/kubernetes/server.yaml > serve.yaml
    """
    click.echo(yaml.safe_dump(ray.serve_config(parse_file(config)), sort_keys=False), nl=False)


token_option = click.option(
    "--token-file",
    type=click.File(),
    help="A file with the token that the requests carry; - is standard input.",
)


@deploy.command()
@click.argument("dashboard", metavar="URL")
@config_option
@token_option
@click.option("--timeout", default=600.0, show_default=True, help="Seconds until all must run.")
@click.option(
    "--in-place",
    is_flag=True,
    help="End a replica before the new one starts: for a cluster without room for both.",
)
def apply(
    dashboard: str, config: Path, token_file: TextIO | None, timeout: float, in_place: bool
) -> None:
    """Deploy to the Ray cluster whose dashboard is at URL, as its Ray Serve applications.

    Groups that changed are replaced replica by replica, the others stay. It ends when all run.
    An old replica serves until a new one does, which takes room for one more of each group.
    While the head of the cluster is away nothing can be applied; what was deployed serves on.

    \b
    Examples:
      attendant deploy apply http://127.0.0.1:8265 -c server.yaml --token-file ~/.ray/auth_token
    """
    config_to_apply = ray.serve_config(parse_file(config))
    if not in_place:
        config_to_apply = ray.surging(config_to_apply)
    ray.apply(dashboard, config_to_apply, _token(token_file), timeout, click.echo)


@deploy.command()
@click.argument("url")
@token_option
def smoke(url: str, token_file: TextIO | None) -> None:
    """Try the server at URL: health, models, a translation, a completion, metrics.

    It exits with 1 where anything fails.

    \b
    Examples:
      attendant deploy smoke http://127.0.0.1:8000
    """
    results = []
    for check in checks_of(url, _token(token_file)):
        result = "ok" if check.passed else "FAILED"
        click.echo(f"{check.name:12} {result:7} {check.seconds * 1000:7.0f} ms  {check.result}")
        results.append(check.passed)
    if not all(results):
        sys.exit(1)


def _token(file: TextIO | None) -> str | None:
    return file.read().strip() if file else None
