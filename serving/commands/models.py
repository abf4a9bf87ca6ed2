"""`attendant models`: load and unload models of a server that runs."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import click

from serving.commands.common import fail

KEY_VARIABLE = "ATTENDANT_OPERATOR_KEY"
_TIMEOUT_SECONDS = 900.0
_URL = click.option(
    "--url",
    default="http://127.0.0.1:8001",
    show_default=True,
    help="Where the server's operations port is, on this machine.",
)


@click.group()
def models() -> None:
    """Load and unload models of a server that runs on this machine.

    The server is started with `--operators FILE`, a file of keys as `attendant keys` writes it. The
    environment variable ATTENDANT_OPERATOR_KEY holds the key to show.

    \b
    Examples:
      export ATTENDANT_OPERATOR_KEY=$(attendant keys create me --file operators.json)
      attendant serve build/bundles/transformer-en-fr-int8 --operators operators.json
      attendant models load build/bundles/bahdanau-en-fr-int8
      attendant models unload bahdanau-en-fr
    """


@models.command()
@click.argument("bundle", type=click.Path(path_type=Path, file_okay=False))
@click.option("--group", help="The worker group that is to serve it.  [default: the first]")
@_URL
def load(bundle: Path, group: str | None, url: str) -> None:
    """Load BUNDLE into every replica of a group, beside what it serves."""
    body = {"bundle": str(bundle.resolve()), "group": group}
    click.echo(f"{_ask('POST', url, '/models', body)} is served")


@models.command()
@click.argument("name")
@_URL
def unload(name: str, url: str) -> None:
    """Take the model NAME out of every replica; requests in progress end as they would have."""
    click.echo(f"{_ask('DELETE', url, '/models/' + urllib.parse.quote(name))} is served no more")


def _ask(method: str, url: str, path: str, body: Any = None) -> str:
    """Return the name of the model that the server answers with; fail with its reason."""
    headers = {"Authorization": f"Bearer {os.environ.get(KEY_VARIABLE, '')}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url.rstrip("/") + path, data, headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(json.load(answer)["model"])
    except urllib.error.HTTPError as error:
        fail(_reason(error))
    except (OSError, ValueError) as error:  # an URL that is none is a ValueError
        fail(f"{url}: {getattr(error, 'reason', error)}")


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code}: {text[:500]}"
