"""`attendant keys`: who may ask a server that is started with `--keys`."""

from pathlib import Path

import click

from serving.commands.common import fail

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
      attendant serve build/bundles/* --keys keys.json
      attendant keys revoke alice
    """


@keys.command()
@click.argument("name")
@click.option("--rate", type=float, help="Most requests a second, of each replica.")
@click.option("--tokens", type=float, help="Most tokens a minute, of each replica.")
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
    from serving.access.key_file import hash_of, new_entry, new_key, read_keys, write_keys

    entries = read_keys(path) if path.exists() else ()
    if any(entry.name == name for entry in entries):
        fail(f"{path}: there is a key of {name} already; revoke it first")
    key = new_key()
    entry = new_entry(
        name=name,
        sha256=hash_of(key),
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
            _told(entry.requests_per_second, "requests a second"),
            _told(entry.tokens_per_minute, "tokens a minute"),
            _told(entry.requests_per_minute, "requests a minute"),
            _told(entry.characters_per_month, "characters a month"),
        )
        click.echo("\t".join((entry.name, *limits)))


@keys.command()
@click.argument("name")
@_FILE
def revoke(name: str, path: Path) -> None:
    """Take the key of NAME out of the file."""
    from serving.access.key_file import read_keys, write_keys

    entries = read_keys(path)
    kept = tuple(entry for entry in entries if entry.name != name)
    if kept == entries:
        fail(f"{path}: there is no key of {name}")
    write_keys(path, kept)


def _told(rate: float | None, unit: str) -> str:
    return f"any number of {unit}" if rate is None else f"{rate:.15g} {unit}"
