"""`attendant evaluate`: sacreBLEU and chrF of a checkpoint or a bundle on a test set.

A checkpoint is decoded by the plain torch loops, a bundle as `attendant translate` does it.
"""

import json
import sys
from pathlib import Path
from typing import NoReturn

import click

from serving.parameters import MAX_BEAMS


@click.command()
@click.argument("model", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Lines of origin, source and target separated by tabs; or two files, line by line, as"
    " 'folder/name.{en,fr}'. Gzipped if named .gz.",
)
@click.option(
    "--beam",
    "num_beams",
    type=click.IntRange(1, MAX_BEAMS),
    help="Beam search of this width.  [default: the bundle's, else greedy]",
)
@click.option(
    "--marks",
    type=click.Choice(["markup", "protection"]),
    help="Count tags at the right words, or spans that must not change, instead; the lines are"
    " as in tests/data/markup_pairs.tsv and tests/data/protected.tsv, the model a bundle.",
)
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def evaluate(
    model: Path, test_file: Path, num_beams: int | None, marks: str | None, wants_json: bool
) -> None:
    """Score translations by MODEL, a checkpoint folder or a bundle, per origin.

    \b
    Examples:
      attendant evaluate build/bundles/transformer-en-fr-int8 --test data/en-fr/test.tsv.gz
      attendant evaluate BUNDLE --marks markup --test tests/data/markup_pairs.tsv
      attendant evaluate build/zoo/luong/fp32 --beam 5 --test 'data/multi30k/val.{en,fr}.gz'
    """
    from models.checkpoint import CheckpointError
    from serving.errors import BundleError

    if marks is not None:
        _count_marks(model, test_file, marks, wants_json)
        return
    try:
        from export.translators import translator
        from models.data.corpus import read_pairs
        from models.evaluation import evaluate as evaluate_on

        result = evaluate_on(read_pairs(test_file), translator(model, num_beams))
    except ModuleNotFoundError as error:
        _fail(f"evaluating needs {error.name}: pip install 'attendant[train]'")
    except (BundleError, CheckpointError) as error:
        _fail(f"{model} cannot be used:", *(f"  {problem}" for problem in error.problems))
    except (OSError, ValueError) as error:
        _fail(str(error))
    if wants_json:
        click.echo(json.dumps(result.as_json()))
    else:
        click.echo(f"{result.as_table()}\n\n{result.bleu_signature}\n{result.chrf_signature}")


def _count_marks(model: Path, test_file: Path, marks: str, wants_json: bool) -> None:
    from export.marked_scores import Marks, score_marks
    from serving.errors import BundleError

    try:
        score = score_marks(model, test_file, Marks(marks))
    except (BundleError, OSError, ValueError) as error:
        _fail(f"{model} cannot be scored on {test_file}: {error}")
    if wants_json:
        click.echo(json.dumps({"right": score.num_right, "marks": score.num_marks}))
        return
    for expected, text in score.wrong:
        click.echo(f"{expected}\n  {text}")
    click.echo(f"{score.num_right} of {score.num_marks} are right: {score.share:.1%}")


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)
