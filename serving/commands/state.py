"""`attendant state`: look at the state of servers, and move it."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import click

from serving.errors import StorageError
from serving.storage.opening import STATE_VARIABLE, open_state
from serving.storage.state import State

_BAR_DELAY_SECONDS = 1.0


@click.group()
def state() -> None:
    """Look at the state of servers, and move it to another place.

    A PLACE is a folder, or postgresql://USER@HOST/DATABASE. Other users of this machine can read
    command lines: put a URL with a password into the environment variable ATTENDANT_STATE and leave
    that PLACE out, or the password into PGPASSWORD or ~/.pgpass.

    \b
    Examples:
      attendant state check ~/.local/state/attendant
      attendant state copy ~/.local/state/attendant postgresql://attendant@db.example/attendant
    """


@state.command()
@click.argument("place", envvar=STATE_VARIABLE)
def check(place: str) -> None:
    """Check that servers can use PLACE, and print what it has.

    Its tables are brought to this version, as when a server starts.
    """
    from serving.deployments.stores import FILE_STORES, SCHEMAS
    from serving.storage.copying import StateContents, describe_counts

    with closing(_open_existing(place)) as opened:
        opened.check(SCHEMAS)
        contents = StateContents(opened, SCHEMAS, FILE_STORES)
        counts = contents.count()
        click.echo(f"place: {opened.place}")
        for store in contents.stores:
            numbers = {table.name: counts.pop(table.name) for table in store.tables}
            click.echo(f"{store.schema.name}, version {store.version}: {describe_counts(numbers)}")
        click.echo(f"files: {describe_counts(counts)}")


@state.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO", envvar=STATE_VARIABLE)
def copy(source: str, target: str) -> None:
    """Copy all state from one PLACE to another, which must be empty.

    Stop the servers of both before. FROM stays as it is. A copy that was interrupted is begun again
    by the same command; until it is complete no server starts with TO.
    """
    from serving.deployments.stores import FILE_STORES, SCHEMAS
    from serving.storage.copying import copy_state, describe_counts

    with ExitStack() as stack:
        origin = stack.enter_context(closing(_open_existing(source)))
        destination = stack.enter_context(closing(open_state(target)))
        counts = copy_state(origin, destination, SCHEMAS, FILE_STORES, _progress_bar(stack))
    click.echo(f"copied to {destination.place}: {describe_counts(counts)}")


def _open_existing(place: str) -> State:
    """Raises StorageError for a folder without state: looking at it would make tables there."""
    state = open_state(place)
    if not state.is_shared:
        if not Path(place).is_dir():
            raise StorageError(place, "there is no such folder", advice="")
        if not any(Path(place).glob("*.sqlite3")):
            raise StorageError(place, "has no state", advice="")
    return state


def _progress_bar(stack: ExitStack) -> Callable[[int], Callable[[int], object]]:
    """Return what shows a bar, once it is called with a total, until the stack is closed."""
    from tqdm import tqdm

    def start(total: int) -> Callable[[int], object]:
        bar = tqdm(total=total, unit=" rows", disable=None, delay=_BAR_DELAY_SECONDS)
        return stack.enter_context(bar).update

    return start
