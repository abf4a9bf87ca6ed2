"""`attendant lab zoo`: all sequence-to-sequence families trained, exported and compared alike; and
`attendant lab ship`: from a finished run to a checkpoint as the repository keeps it.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

if TYPE_CHECKING:
    from export.zoo.family import Family
    from export.zoo.stages import Stage
from models.command_errors import reported_errors
from models.errors import InputError
from models.safetensors import Storage

STAGE_NAMES = ("train", "evaluate", "measure")
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--data", type=FOLDER, default="data", help="Folder the recipes' data paths are in.")
@click.option(
    "-o", "--output", type=FOLDER, default="build/zoo", help="Folder of the runs and bundles."
)
@click.option(
    "--recipes",
    type=FOLDER,
    default="models/zoo",
    help="Folder of the recipes, NAME.toml; figures go to results/NAME.json in it.",
)
@click.option(
    "--readme",
    type=click.Path(path_type=Path, dir_okay=False),
    default="docs/zoo.md",
    help="Markdown file with <!-- zoo --> and <!-- /zoo -->: the tables go between them.",
)
@click.option(
    "--only",
    "stages",
    type=click.Choice(STAGE_NAMES),
    multiple=True,
    help="Only this stage; may be given again.  [default: all]",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    show_default="all CPUs",
    help="CPU threads of training and of measuring.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    show_default="none",
    help="Stop training after so long; the same command goes on. Each recipe's own budget stays.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Export, evaluate and measure also what is done. Training: remove the run's folder.",
)
@click.option("--table", "only_table", is_flag=True, help="Only rewrite the tables and the plot.")
def zoo(
    names: tuple[str, ...],
    data: Path,
    output: Path,
    recipes: Path,
    readme: Path,
    stages: tuple[str, ...],
    threads: int | None,
    minutes: float | None,
    again: bool,
    only_table: bool,
) -> None:
    """Train the families of the zoo on one budget, export them, and compare them.

    Each NAME is a recipe in models/zoo; without any, all of them. Each goes through three stages:

    \b
      train     until its budget is spent, then goes on from where it was if stopped
      evaluate  BLEU and chrF on the recipe's test set: greedy and beam 5, fp32 and int8;
                of language models bits per byte
      measure   tokens/s of the engine, and against its own step graph: on a quiet machine

    What is done is not done again: stop it when you like, the same command goes on. The figures
    are one small JSON file for each family; the tables in docs/zoo.md and the plots of
    BLEU by source length and of learning are made of all of them at the end. Recipes that are
    called NAME-seed-2 and so on are shown as the spread of NAME.

    \b
    Examples:
      attendant lab zoo --data DATA                         # everything, one after the other
      attendant lab zoo luong luong-no-feeding --data DATA  # these two
      attendant lab zoo --data DATA --only train --minutes 120  # as often as it takes, and then:
      attendant lab zoo --data DATA --only evaluate --only measure
      attendant lab zoo --table                             # after figures came from elsewhere
    """
    from export.zoo.family import Family, Recipe, Settings, data_problems, find_recipes
    from export.zoo.results import read_all
    from export.zoo.stages import select_stages
    from export.zoo.table import readme_problems

    results = recipes / "results"
    all_recipes: list[Recipe] = []
    problems = [*readme_problems(readme), *read_all(results)[1]]
    if not only_table:
        all_recipes, wrong = find_recipes(recipes, names)
        problems += [*wrong, *data_problems(all_recipes, data)]
    _stop_at(problems)
    until = None if minutes is None else time.monotonic() + 60 * minutes
    settings = Settings(data, output, results, threads, again, until)
    families = [Family(recipe, settings) for recipe in all_recipes]
    try:
        problems = _work_through(families, select_stages(stages)) if families else []
    except KeyboardInterrupt:
        click.echo("stopped; the same command goes on from here", err=True)
        sys.exit(130)
    _write_table(results, readme)
    _stop_at(problems)


def _stop_at(problems: Sequence[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(2)


def _work_through(families: Sequence["Family"], stages: Sequence["Stage"]) -> list[str]:
    """All that is left to do, under one bar; the problems of families that could not go on."""
    from export.zoo.results import OutOfTime, ZooError
    from models.checkpoint import CheckpointError
    from serving.errors import AttendantError

    problems = []
    with tqdm(total=len(families) * len(stages), unit="stage", miniters=1) as bar:
        for number, family in enumerate(families, 1):
            try:
                with family.lock():
                    _bring_on(family, stages, bar)
            except OutOfTime:
                click.echo("the time is over; the same command goes on from here", err=True)
                break
            except (ZooError, CheckpointError, AttendantError, OSError, InputError) as error:
                messages = getattr(error, "problems", None) or [str(error)]
                problems += [f"{family.name}: {problem}" for problem in messages]
            bar.n = number * len(stages)
            bar.refresh()
    return problems


def _bring_on(family: "Family", stages: Sequence["Stage"], bar: tqdm) -> None:
    for stage in stages:
        if not stage.is_done(family):
            bar.set_description(f"{family.name}: {stage.name}")
            click.echo(err=True)  # what the stage shows comes on a line of its own
            stage.run(family)
        bar.update()


def _write_table(results: Path, readme: Path) -> None:
    from export.zoo.pictures import draw_all
    from export.zoo.results import read_all
    from export.zoo.table import render, rewrite

    all_results = read_all(results)[0]
    drawn = draw_all(all_results, results.parent)
    rewrite(
        readme, render(all_results, {says: _address(path, readme) for says, path in drawn.items()})
    )


def _address(picture: Path, readme: Path) -> str:
    """Return the picture's address, as the page links to it."""
    return os.path.relpath(picture, readme.parent)


@click.command(context_settings={"show_default": True})
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder of what is shipped.")
@click.option(
    "--weights",
    type=click.Choice([storage.value for storage in Storage]),
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

    The int8 bundle, the fp32 bundle and the fp32 bundle of CHECKPOINT as it is are scored, which
    shows what int8 and what the stored weights cost. A translator gets BLEU, chrF and what it
    carries over, for every source of the test set and for the made sets, and a table of everyday
    sentences. A language model gets bits per byte.

    All of it is in the card and in quality.json, with pictures of quality by length and of an
    alignment. The graphs are compared with torch in fp32, fp16 and
    int8: exports show this record where they do not compare by themselves.

    \b
    Example:
      attendant lab ship build/runs/transformer-en-fr/checkpoint \\
        -o models/checkpoints/transformer-en-fr --weights int8 \\
        --recipe models/recipes/transformer-en-fr.toml --data data
    """
    with reported_errors("shipping", "cpu,train"):
        from export.zoo.shipping import Sources, ship_checkpoint

        sources = Sources(recipe, data, sets)
        click.echo(ship_checkpoint(checkpoint, output, Storage(weights), sources))
