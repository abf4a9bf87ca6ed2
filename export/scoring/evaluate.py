"""`attendant evaluate`: quality of a checkpoint or a bundle, translations or prose.

A checkpoint is decoded by the plain torch loops, a bundle as `attendant translate` does it, but
what must not change is protected only when asked.
Language models are asked how likely a text is.
"""

import json
import sys
from pathlib import Path
from typing import NoReturn

import click

from serving.parameters import MAX_BEAMS

MODEL = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "--test",
    "tests",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Lines of origin, source and target separated by tabs; or two files, line by line, as"
    " 'folder/name.{en,fr}'; of a language model prose. Gzipped if named .gz. May be given again.",
)
@click.option(
    "--held-out",
    "recipe",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Of a language model: the prose that this recipe holds out of training.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default="data",
    show_default=True,
    help="Folder that the recipe's paths are relative to.",
)
@click.option(
    "--against",
    type=MODEL,
    help="Another checkpoint or bundle, to be scored beside MODEL: int8 against fp32.",
)
@click.option(
    "--beam",
    "num_beams",
    type=click.IntRange(1, MAX_BEAMS),
    help="Beam search of this width.  [default: the bundle's, else greedy]",
)
@click.option(
    "--protect",
    is_flag=True,
    help="Translate as services do: addresses, code and numbers are kept, and capitals are read as"
    " small letters. Of bundles.",
)
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def evaluate(
    model: Path,
    tests: tuple[Path, ...],
    recipe: Path | None,
    data: Path,
    against: Path | None,
    num_beams: int | None,
    protect: bool,
    wants_json: bool,
) -> None:
    """Score MODEL, a checkpoint folder or a bundle: translations per origin, by BLEU, chrF and what
    they carry over; of language models bits per byte and perplexity; of models that label texts how
    many get their label, which is the first column of the test file.

    Prose is one stream of documents, each with its end. A window slides over it by half of what
    the model can read, 1,024 tokens at most: each token is predicted once.

    \b
    Examples:
      attendant evaluate build/bundles/transformer-en-fr-int8 --test data/en-fr/test.tsv.gz
      attendant evaluate build/zoo/luong/fp32 --beam 5 --test 'data/multi30k/val.{en,fr}.gz'
      attendant evaluate build/bundles/llama-en-int8 --against build/bundles/llama-en-fp32
        --held-out models/recipes/llama-en.toml --data data
    """
    from export.scoring.asking import Question, ask
    from models.storage.checkpoint import CheckpointError
    from serving.errors import BundleError

    models = [model, *([against] if against else [])]
    try:
        report = ask(models, Question(tests, recipe, data, num_beams, protect))
    except ModuleNotFoundError as error:
        _fail(f"evaluating needs {error.name}: pip install 'attendant[train]'")
    except (BundleError, CheckpointError) as error:
        path = error.path if isinstance(error, BundleError) else error.folder
        _fail(f"{path} cannot be used:", *(f"  {problem}" for problem in error.problems))
    except (OSError, ValueError) as error:
        _fail(str(error))
    click.echo(json.dumps(report.as_json()) if wants_json else report.as_markdown())


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)
