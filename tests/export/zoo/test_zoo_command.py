"""`attendant lab zoo`: a real, tiny zoo from captions to the table, and what stops it."""

import fcntl
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from export.scoring.scorers import translator
from export.zoo import stages
from export.zoo.commands import STAGE_NAMES, zoo
from export.zoo.family import Family, Settings, find_recipes
from export.zoo.results import read_results
from export.zoo.stages import STAGES
from export.zoo.table import block
from models.scores import Translate

PAIRS = Path(__file__).parent.parent.parent / "data" / "en-fr-200.tsv"
BUDGET = """
[data]
train = ["train.tsv"]
dev = "test.tsv"
test = "test.tsv"
[run]
max_steps = 12
tokens_per_batch = 24
validations = 2
bleu_sentences = 2
clock = "processor"
"""
RECIPE = """
extends = "_budget.toml"
name = "{name}"
[card]
title = "Bahdanau et al. 2015"
[model]
architecture = "bahdanau"
vocab_size = 300
embedding_dim = 16
hidden_dim = 16
attention_dim = 16
readout_dim = 16
max_source_tokens = 200
max_target_tokens = 24
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes, captions and a README."""
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "recipes").mkdir()
    write_recipe(folder, "small")
    (folder / "recipes" / "_budget.toml").write_text(BUDGET)
    (folder / "data").mkdir()
    lines = PAIRS.read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "data" / "train.tsv").write_text("".join(lines[:100]), encoding="utf-8")
    (folder / "data" / "test.tsv").write_text("".join(lines[100:120]), encoding="utf-8")
    (folder / "README.md").write_text("# Mine\n<!-- zoo -->\n<!-- /zoo -->\nThe end.\n")
    return folder


def write_recipe(folder: Path, name: str, more: str = "") -> None:
    path = folder / "recipes" / f"{name}.toml"
    path.write_text(RECIPE.format(name=name) + more)


def run(folder: Path, *words: str) -> Result:
    places = {"--data": "data", "-o": "build", "--recipes": "recipes", "--readme": "README.md"}
    options = [word for key, value in places.items() for word in (key, str(folder / value))]
    return CliRunner().invoke(zoo, [*options, "--threads", "1", *words])


def stamps(folder: Path) -> dict[str, int]:
    """When each file of the runs and bundles was written."""
    paths = (folder / "build").rglob("*.*")
    return {str(path): path.stat().st_mtime_ns for path in paths if path.name != "sentences.txt"}


@pytest.fixture(scope="module")
def done(place: Path) -> Path:
    """After training, and then, in another run, all the rest."""
    first = run(place, "--only", "train")
    assert first.exit_code == 0, first.output
    results = read_results(place / "recipes/results/small.json")
    assert results and results.training and results.training.steps == 12
    progress = json.loads((place / "build/small/run/state/progress.json").read_text())
    assert results.training.epochs == round(12 / progress["num_batches"], 1) == 1.1
    assert results.translation is results.speed is None
    assert "| `small` | Bahdanau et al. 2015 | 0.0 M |" in (place / "README.md").read_text()
    second = run(place)
    assert second.exit_code == 0, second.output
    return place


def test_all_figures_are_there(done: Path) -> None:
    results = read_results(done / "recipes/results/small.json")
    assert results and results.translation and results.speed and results.bundle
    assert results.languages == "en-fr"
    assert results.bundle.has_attention
    assert results.bundle.bytes_per_source_token > 0 == results.bundle.bytes_per_target_token
    assert results.translation.sentences == 20
    assert sum(each.sentences for each in results.translation.by_length) == 20
    assert "case:lc" in results.translation.lowercased_bleu_signature
    for pace in (results.speed.fp32, results.speed.int8):
        assert min(pace.batch_1, pace.batch_32, pace.engine_over_graph) > 0
    assert results.speed.threads == 1


def test_the_readme_has_the_table_and_keeps_the_rest(done: Path) -> None:
    readme = (done / "README.md").read_text()
    assert readme.startswith("# Mine\n") and readme.endswith("\nThe end.\n")
    row = next(line for line in block(readme).splitlines() if line.startswith("| `small`"))
    assert "|  |" not in row
    assert "(recipes/bleu-by-length.svg)" in readme
    assert "small: " in (done / "recipes/bleu-by-length.svg").read_text()


def test_what_is_done_is_not_done_again(done: Path) -> None:
    before = stamps(done)
    assert run(done).exit_code == 0
    assert stamps(done) == before


def test_again_keeps_the_training(done: Path) -> None:
    [recipe], _ = find_recipes(done / "recipes", ["small"])
    settings = Settings(done / "data", done / "build", done / "recipes/results")
    for again in (False, True):
        family = Family(recipe, replace(settings, again=again))
        is_done = {name: stage.is_done(family) for name, stage in STAGES.items()}
        assert is_done == {"train": True, "evaluate": not again, "measure": not again}


def test_another_checkpoint_begins_another_file(done: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(done, place)
    path = place / "recipes/results/small.json"
    figures = json.loads(path.read_text())
    path.write_text(json.dumps(figures | {"checkpoint": "of another"}))
    assert run(place, "--only", "train").exit_code == 0
    results = read_results(path)
    assert results and results.training and results.translation is None


def test_a_stage_that_is_stopped_leaves_nothing_and_is_done_again(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "copy"
    shutil.copytree(done, place)
    path = place / "recipes/results/small.json"
    results = read_results(path)
    assert results
    results.model_copy(update={"translation": None}).save(path)
    before = path.read_text()
    with monkeypatch.context() as patched:
        patched.setattr(stages, "translator", stop_at_beams)
        result = run(place)
    assert result.exit_code == 130 and "the same command goes on" in result.output
    assert path.read_text() == before
    assert run(place).exit_code == 0
    after = read_results(path)
    assert after and (after.translation, after.speed) == (results.translation, results.speed)


def stop_at_beams(folder: Path, num_beams: int | None = None) -> Translate:
    if num_beams:
        raise KeyboardInterrupt
    return translator(folder)


def test_a_run_of_another_model_is_refused(done: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(done, place)
    write_recipe(place, "small", "dropout = 0.3\n")
    result = run(place, "--only", "train")
    assert result.exit_code == 2
    assert "small: " in result.output and "another [model]" in result.output


def test_two_do_not_work_on_one_family(done: Path) -> None:
    with (done / "build/small/lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run(done)
    assert result.exit_code == 2 and "in use by another process" in result.output


def test_a_family_that_fails_leaves_the_others_alone(done: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(done, place)
    write_recipe(place, "early")
    result = run(place, "--only", "evaluate")
    assert result.exit_code == 2
    assert "early: it is not trained yet: attendant lab zoo early --only train" in result.output
    assert "`small`" in (place / "README.md").read_text()


def test_everything_wrong_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "recipes/results").mkdir(parents=True)
    (tmp_path / "recipes/_budget.toml").write_text(BUDGET)
    write_recipe(tmp_path, "right")
    write_recipe(tmp_path, "wide", "colour = 3\nsize = 4\n")
    (tmp_path / "recipes/copy.toml").write_text(RECIPE.format(name="right"))
    (tmp_path / "recipes/results/right.json").write_text('{"name": 3}')
    result = run(tmp_path, "right", "wide", "copy", "unknown")
    assert result.exit_code == 2 and "Traceback" not in result.output
    for problem in (
        "unknown is none of copy, right, wide",
        "colour",
        "size",
        "name: 'right' is not the file's",
        "there is no such data folder",
        "README.md: there is no such file",
        "right.json: name",
    ):
        assert problem in result.output
    assert not (tmp_path / "build").exists()


def test_missing_files_of_the_data_are_all_named(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "recipes", tmp_path / "recipes")
    shutil.copy(place / "README.md", tmp_path)
    (tmp_path / "data").mkdir()
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "train.tsv" in result.output and "test.tsv" in result.output


def test_no_recipes(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 2 and "holds no recipes" in result.output


def test_the_stages_are_those_of_the_help() -> None:
    assert tuple(STAGES) == STAGE_NAMES


PROSE_RECIPE = """
name = "gru-lm"
[card]
title = "GRU language model (Cho et al. 2014)"
[model]
architecture = "recurrent-lm"
vocab_size = 300
embedding_dim = 16
hidden_dim = 16
context_length = 32
[data]
train = ["books.txt"]
held_out = 0.2
[run]
max_steps = 12
tokens_per_batch = 256
validations = 2
"""
NIGHT = "It was a dark and stormy night; the rain fell in torrents. " * 12


def write_prose(folder: Path) -> Path:
    (folder / "recipes").mkdir()
    (folder / "recipes" / "gru-lm.toml").write_text(PROSE_RECIPE)
    (folder / "data").mkdir()
    books = "\n".join(f"{number} {NIGHT}" for number in range(10))
    (folder / "data" / "books.txt").write_text(books)
    (folder / "README.md").write_text("<!-- zoo --><!-- /zoo -->")
    return folder


def test_a_language_model_goes_from_prose_to_the_table(tmp_path: Path) -> None:
    stages = ["--only", "train", "--only", "evaluate"]
    result = run(write_prose(tmp_path), *stages)
    assert result.exit_code == 0, result.output
    results = read_results(tmp_path / "recipes/results/gru-lm.json")
    assert results and results.prose and results.translation is None
    assert results.languages == "en"
    assert results.prose.documents == 2
    assert results.prose.int8 == pytest.approx(results.prose.fp32, rel=0.05)
    assert results.training and len(results.training.curve) == 2
    readme = (tmp_path / "README.md").read_text()
    assert f"| {results.prose.fp32:.3f} | {results.prose.int8:.3f} |" in readme
    assert "(recipes/learning.svg)" in readme
    before = stamps(tmp_path)
    assert run(tmp_path, *stages).exit_code == 0
    assert stamps(tmp_path) == before


def test_training_stops_when_the_time_is_over_and_goes_on_with_the_next_call(
    tmp_path: Path,
) -> None:
    stopped = run(write_prose(tmp_path), "--only", "train", "--minutes", "0.002")
    assert stopped.exit_code == 0, stopped.output
    assert "the time is over" in stopped.output
    assert not (tmp_path / "recipes/results/gru-lm.json").exists()
    assert run(tmp_path, "--only", "train").exit_code == 0
    assert read_results(tmp_path / "recipes/results/gru-lm.json")
