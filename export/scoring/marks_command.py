"""`attendant evaluate-marks`: how many tags a bundle puts at the right words, and how much of what
must not change it leaves as it was.
"""

import json
import sys
from pathlib import Path

import click


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
      attendant evaluate-marks build/bundles/transformer-en-fr-int8
        --markup tests/data/markup_pairs.tsv --protection tests/data/protected.tsv
    """
    from export.scoring.marked_scores import MarkedScore, Marks, score_marks
    from serving.errors import BundleError

    tests = {Marks.MARKUP: markup, Marks.PROTECTION: protection}
    scores: dict[Marks, MarkedScore] = {}
    for marks, test in tests.items():
        try:
            if test is not None:
                scores[marks] = score_marks(bundle, test, marks)
        except (BundleError, OSError, ValueError) as error:
            click.echo(f"{bundle} cannot be scored on {test}: {error}", err=True)
            sys.exit(2)
    if wants_json:
        report = {marks: [each.num_right, each.num_marks] for marks, each in scores.items()}
        click.echo(json.dumps(report))
        return
    for marks, score in scores.items():
        for expected, text in score.wrong:
            click.echo(f"{expected}\n  {text}")
        click.echo(f"{marks}: {score.num_right} of {score.num_marks} are right: {score.share:.1%}")
