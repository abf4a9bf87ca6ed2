"""Tags at the right words and spans that do not change, counted on the shipped models."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from export.scoring.commands import evaluate_marks
from export.scoring.reports import Marks, score_marks
from tests.served import int8_bundle

DATA = Path(__file__).parents[2] / "data"
TESTS = {Marks.MARKUP: DATA / "markup_pairs.tsv", Marks.PROTECTION: DATA / "protected.tsv"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marks")
    return int8_bundle("transformer-en-fr", "transformer", folder)


@pytest.mark.parametrize(("marks", "floor"), [(Marks.MARKUP, 0.88), (Marks.PROTECTION, 0.97)])
def test_the_shipped_transformer_puts_marks_right(bundle: Path, marks: Marks, floor: float) -> None:
    score = score_marks(bundle, TESTS[marks], marks)
    assert score.num_marks == {Marks.MARKUP: 320, Marks.PROTECTION: 68}[marks]
    assert score.share >= floor, score.wrong


def test_the_command_shows_what_is_wrong(bundle: Path, tmp_path: Path) -> None:
    test = tmp_path / "pairs.tsv"
    test.write_text("I saw a <b>black dog</b>.\tb=chien noir\nThe <i>cat</i> sleeps.\ti=wrong\n")
    options = [str(bundle), "--markup", str(test)]
    said = CliRunner().invoke(evaluate_marks, options).stdout
    assert said.startswith("i=wrong\n  Le <i>chat</i> ")
    assert said.endswith("markup: 1 of 2 are right: 50.0%\n")


def test_a_line_without_a_tab_is_refused(bundle: Path, tmp_path: Path) -> None:
    test = tmp_path / "pairs.tsv"
    test.write_text("I saw a <b>black dog</b>.\n")
    options = [str(bundle), "--markup", str(test)]
    result = CliRunner().invoke(evaluate_marks, options)
    assert result.exit_code == 2
    assert "a line without a tab" in result.stderr
