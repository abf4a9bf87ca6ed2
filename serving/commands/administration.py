"""`attendant keys` manages the keys of a server that is started with `--keys`; `attendant models`
loads and unloads models.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import click

from serving.commands.failure import fail

_FILE = click.option(
    "--file",
    "path",
    default=Path("keys.json"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of keys.",
)


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of a server.

    The file holds hashes, never keys. A server that runs sees changes of it within a second.

    \b
    Examples:
      attendant keys create alice --rate 5 --tokens 100000
      attendant keys create bob --characters 500000
      attendant keys list
      attendant serve build/bundles/* --keys keys.json
      attendant keys revoke alice
    """


@keys.command()
@click.argument("name")
@click.option("--rate", type=float, help="Most requests a second.")
@click.option("--tokens", type=float, help="Most tokens a minute.")
@click.option("--requests", type=float, help="Most requests a minute, of all replicas together.")
@click.option("--characters", type=int, help="Most characters a month, of all replicas together.")
@_FILE
def create(
    name: str,
    rate: float | None,
    tokens: float | None,
    requests: float | None,
    characters: int | None,
    path: Path,
) -> None:
    """Make a key for NAME and print it, this once."""
    from serving.access.key_file import generate_key, hash_key, new_key_entry, read_keys, write_keys

    entries = read_keys(path) if path.exists() else ()
    if any(entry.name == name for entry in entries):
        fail(f"{path}: there is a key of {name} already; revoke it first")
    key = generate_key()
    entry = new_key_entry(
        name=name,
        sha256=hash_key(key),
        requests_per_second=rate,
        tokens_per_minute=tokens,
        requests_per_minute=requests,
        characters_per_month=characters,
    )
    write_keys(path, (*entries, entry))
    click.echo(key)


@keys.command("list")
@_FILE
def list_keys(path: Path) -> None:
    """List names, rates and quotas."""
    from serving.access.key_file import read_keys

    for entry in read_keys(path):
        limits = (
            _rate_text(entry.requests_per_second, "requests a second"),
            _rate_text(entry.tokens_per_minute, "tokens a minute"),
            _rate_text(entry.requests_per_minute, "requests a minute"),
            _rate_text(entry.characters_per_month, "characters a month"),
        )
        click.echo("\t".join((entry.name, *limits)))


@keys.command()
@click.argument("name")
@_FILE
def revoke(name: str, path: Path) -> None:
    """Take the key of NAME out of the file."""
    from serving.access.key_file import read_keys, write_keys

    entries = read_keys(path)
    entries_left = tuple(entry for entry in entries if entry.name != name)
    if entries_left == entries:
        fail(f"{path}: there is no key of {name}")
    write_keys(path, entries_left)


def _rate_text(rate: float | None, unit: str) -> str:
    return f"any number of {unit}" if rate is None else f"{rate:.15g} {unit}"


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
      attendant models load build/new/bahdanau-en-fr-int8 --replace
      attendant models unload bahdanau-en-fr
    """


@models.command()
@click.argument("bundle", type=click.Path(path_type=Path, file_okay=False))
@click.option("--group", help="The worker group that is to serve it.  [default: the first]")
@click.option("--replace", is_flag=True, help="Take the place of the model of the same name.")
@_URL
def load(bundle: Path, group: str | None, replace: bool, url: str) -> None:
    """Load BUNDLE into every replica of a group, beside what it serves.

    With --replace no request fails: until all replicas have loaded BUNDLE, the version before
    answers. Load that one again, also with --replace, to go back.
    """
    body = {"bundle": str(bundle.resolve()), "group": group, "replace": replace}
    click.echo(f"{_ask('POST', url, '/models', body)} is served")


@models.command()
@click.argument("name")
@_URL
def unload(name: str, url: str) -> None:
    """Take the model NAME out of every replica; requests in progress end as they would have."""
    click.echo(f"{_ask('DELETE', url, '/models/' + urllib.parse.quote(name))} is served no more")


def _ask(method: str, url: str, path: str, body: Any = None) -> str:
    """Return the name of the model that the server answers with; fail with its reason."""
    authorization = f"Bearer {os.environ.get(KEY_VARIABLE, '')}"
    try:
        return str(ask(method, url.rstrip("/") + path, authorization, body)["model"])
    except ValueError as error:
        fail(str(error))


def ask(method: str, url: str, authorization: str, body: Any = None) -> Any:
    """Return the JSON of a server's answer. Raise ValueError with its reason, or with why there is
    none.
    """
    # A key from the environment may end with the line break of `echo`, which no header may have.
    headers = {"Authorization": authorization.strip(), "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with open_url(method, url, headers, data) as answer:
        return json.load(answer)


def open_url(method: str, url: str, headers: dict[str, str], data: Any = None) -> HTTPResponse:
    """Return a server's answer, to be closed. Raise ValueError as `ask` does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it may be this machine
    try:
        request = urllib.request.Request(url, data, headers, method=method)
        answer: HTTPResponse = opener.open(request, timeout=_TIMEOUT_SECONDS)
        return answer
    except urllib.error.HTTPError as error:
        raise ValueError(_reason(error)) from None
    except (OSError, ValueError) as error:  # an URL that is none is a ValueError
        raise ValueError(f"{url}: {getattr(error, 'reason', error)}") from None


def _reason(error: urllib.error.HTTPError) -> str:
    """Return why a request was refused: `error`, or DeepL's `message` and `detail`."""
    text = error.read().decode(errors="replace")
    try:
        answer = json.loads(text)
        said = ": ".join(
            str(answer[key]) for key in ("error", "message", "detail") if key in answer
        )
    except (ValueError, TypeError):
        said = ""
    return said or f"{error.code}: {text[:500]}"
