"""`attendant ship`: from a finished run to a checkpoint as the repository keeps it."""

import sys
from pathlib import Path

import click

from models.storage.safetensors import Storage

FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(context_settings={"show_default": True})
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder of what is shipped.")
@click.option(
    "--weights",
    type=click.Choice([each.value for each in Storage]),
    default=Storage.FP16.value,
    help="How they are stored. int8 is matrices in int8, row by row, and the rest in fp16: the int8"
    " bundle of a Transformer that translates, and of bahdanau, stays the same.",
)
@click.option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    help="What it was trained by: it names the test set, or the prose that was held out.",
)
@click.option("--data", type=FOLDER, default="data", help="Folder the recipe's paths are in.")
@click.option(
    "--sets",
    type=FOLDER,
    default="tests/data",
    help="Folder of made/*.tsv and everyday.tsv, which translations are scored on too.",
)
def ship(
    checkpoint: Path, output: Path, weights: str, recipe: Path, data: Path, sets: Path
) -> None:
    """Store CHECKPOINT small, score what is served of it, and write that into its card.

    Scored are the int8 bundle, the fp32 bundle, and the fp32 bundle of CHECKPOINT as it is, so that
    it can be read off what int8 and what the stored weights cost: BLEU, chrF and what is carried
    over for every source of the test set and for the made sets, and a table of everyday sentences;
    bits per byte of a language model. All of it is in the card and in quality.json, with pictures
    of quality by length and of an alignment.

    \b
    Example:
      attendant ship build/runs/transformer-en-fr/checkpoint -o models/checkpoints/transformer-en-fr
        --weights int8 --recipe models/recipes/transformer-en-fr.toml --data data
    """
    from export.shipping.shipping import Sources, ship_checkpoint
    from export.zoo.errors import ZooError
    from models.storage.checkpoint import CheckpointError
    from models.training.config import ConfigError
    from serving.errors import AttendantError

    try:
        said = ship_checkpoint(checkpoint, output, Storage(weights), Sources(recipe, data, sets))
    except ModuleNotFoundError as error:
        _stop([f"shipping needs {error.name}: pip install 'attendant[cpu,train]'"])
    except (
        CheckpointError,
        ConfigError,
        AttendantError,
        ZooError,
        OSError,
        ValueError,
    ) as error:
        _stop(getattr(error, "problems", None) or [str(error)])
    click.echo(said)


def _stop(problems: list[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(2)
