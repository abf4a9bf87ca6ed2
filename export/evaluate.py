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
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def evaluate(model: Path, test_file: Path, num_beams: int | None, wants_json: bool) -> None:
    """Score translations by MODEL, a checkpoint folder or a bundle, per origin.

    \b
    Examples:
      attendant evaluate build/bundles/transformer-en-fr-int8 --test data/en-fr/test.tsv.gz
      attendant evaluate build/zoo/luong/fp32 --beam 5 --test 'data/multi30k/val.{en,fr}.gz'
    """
    from models.checkpoint import CheckpointError
    from serving.errors import BundleError

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


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)
