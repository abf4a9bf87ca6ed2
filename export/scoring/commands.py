"""`attendant evaluate`, `calibrate`, `evaluate-marks` and `distil`: quality of models, and data to
learn from.

A checkpoint is decoded by the plain torch loops, a bundle as `attendant translate` does it, but
what must not change is protected only when asked. Language models are asked how likely a text is.
"""

import asyncio
import json
import sys
from pathlib import Path

import click

from models.command_errors import reported_errors
from models.errors import InputError
from serving.requests.parameters import MAX_BEAMS

MODEL = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File of lines of origin, source and translation; where it is there already, it goes on.",
)
@click.option(
    "--beam",
    "num_beams",
    type=click.IntRange(1, MAX_BEAMS),
    default=5,
    show_default=True,
    help="How many translations of each source there are to choose from.",
)
def distil(bundle: Path, pairs: Path, output: Path, num_beams: int) -> None:
    """Translate the sources of PAIRS by beam search, as training data.

    Of each beam the translation is kept that is nearest to the reference, by BLEU of the sentence.

    A model that learns from these writes greedily what took a search before: of its own
    translations, or of those of a larger model (sequence-level interpolation, Kim and Rush 2016,
    3.3). A recipe names the file as `distilled` in [data].

    PAIRS has lines of origin, source and reference separated by tabs, as those of `attendant
    evaluate --test`. What must not change is not protected: the model itself is to learn it.

    \b
    Example:
      attendant lab distil build/bundles/transformer-en-fr-int8 data/en-fr/train.tsv.gz \\
        -o data/en-fr/distilled.tsv
    """
    with reported_errors("distilling"):
        from export.scoring.scorers import distil_corpus

        asyncio.run(distil_corpus(bundle, pairs, output, num_beams))


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
    """Score MODEL, a checkpoint folder or a bundle, on a test file.

    Translators get BLEU, chrF and what they carry over, by origin. Language models get bits per
    byte and perplexity. Models that label texts get the share of right labels; the file's first
    column is the label.

    Prose is one stream of documents, each with its end. A window slides over it by half of what
    the model can read, 1,024 tokens at most: each token is predicted once.

    \b
    Examples:
      attendant evaluate build/bundles/transformer-en-fr-int8 --test tests/data/en-fr-200.tsv
      attendant evaluate models/checkpoints/bahdanau-en-fr --beam 5 --test 'news.{en,fr}.gz'
      attendant evaluate build/bundles/llama-en-int8 --against models/checkpoints/llama-en \\
        --test tests/data/prose-en.txt
    """
    with reported_errors("evaluating"):
        from export.scoring.reports import Test, score_models

        models = [model, *([against] if against else [])]
        report = score_models(models, Test(tests, recipe, data, num_beams, protect))
    click.echo(json.dumps(report.as_json()) if wants_json else report.as_markdown())


@click.command()
@click.argument("bundle", type=MODEL)
@click.option(
    "--dev",
    type=click.Path(path_type=Path),
    required=True,
    help="Pairs to calibrate with, as those of `attendant evaluate --test`.",
)
@click.option(
    "--test", type=click.Path(path_type=Path), required=True, help="Other pairs, to measure with."
)
@click.option(
    "--beam",
    "num_beams",
    type=click.IntRange(1, MAX_BEAMS),
    help="Beam search of this width.  [default: the bundle's, else greedy]",
)
def calibrate(bundle: Path, dev: Path, test: Path, num_beams: int | None) -> None:
    """Measure how well BUNDLE knows which of its translations are good, and calibrate that.

    Shown are the correlations of what the model tells of translations with their chrF, and the line
    to chrF that a checkpoint exports as `calibration`, with `intercept` and `slope`, in its
    quality.json.

    \b
    Example:
      attendant lab calibrate build/bundles/transformer-en-fr-int8 \\
        --dev data/en-fr/dev.tsv.gz --test data/en-fr/test.tsv.gz
    """
    with reported_errors("calibrating"):
        from export.scoring.confidence import confidence_report
        from models.data.corpus import read_pairs

        report = confidence_report(bundle, read_pairs(dev), read_pairs(test), num_beams)
    click.echo(report)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--markup", type=click.Path(path_type=Path), help="Lines as in markup_pairs.tsv.")
@click.option("--protection", type=click.Path(path_type=Path), help="Lines as in protected.tsv.")
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def evaluate_marks(
    bundle: Path, markup: Path | None, protection: Path | None, wants_json: bool
) -> None:
    """Count what BUNDLE does with marks, on tests as those in tests/data.

    \b
    Example:
      attendant lab evaluate-marks build/bundles/transformer-en-fr-int8 \\
        --markup tests/data/markup_pairs.tsv --protection tests/data/protected.tsv
    """
    from export.scoring.reports import MarkedScore, Marks, score_marks
    from serving.errors import BundleError

    tests = {Marks.MARKUP: markup, Marks.PROTECTION: protection}
    scores: dict[Marks, MarkedScore] = {}
    for marks, test in tests.items():
        try:
            if test is not None:
                scores[marks] = score_marks(bundle, test, marks)
        except (BundleError, OSError, InputError) as error:
            click.echo(f"{bundle} cannot be scored on {test}: {error}", err=True)
            sys.exit(2)
    if wants_json:
        report = {
            marks: [marked_score.num_right, marked_score.num_marks]
            for marks, marked_score in scores.items()
        }
        click.echo(json.dumps(report))
        return
    for marks, score in scores.items():
        for expected, text in score.wrong:
            click.echo(f"{expected}\n  {text}")
        click.echo(f"{marks}: {score.num_right} of {score.num_marks} are right: {score.share:.1%}")
