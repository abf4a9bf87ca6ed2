"""The table says what the results files say, and so does the page."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from export.zoo.commands import zoo
from export.zoo.pictures import (
    BY_LENGTH,
    LEARNING,
    description,
    draw,
    draw_all,
    select_translators,
    select_with_curves,
)
from export.zoo.results import read_all, read_results
from export.zoo.table import block, readme_problems, render, rewrite
from tests.export.zoo.figures import prose_results, results, with_curve

ROOT = Path(__file__).parent.parent.parent.parent
ZOO = ROOT / "models" / "zoo"
SHIPPED, PROBLEMS = read_all(ZOO / "results")


def rows(text: str, name: str) -> list[list[str]]:
    """The cells of every row about a family."""
    lines = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_says_what_the_files_say() -> None:
    assert PROBLEMS == []
    page = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    pictures = {}
    if select_translators(SHIPPED):
        pictures["BLEU by the number of source words"] = f"../models/zoo/{BY_LENGTH}"
    if select_with_curves(SHIPPED):
        pictures["held-out text by minutes of training"] = f"../models/zoo/{LEARNING}"
    assert block(page) == render(SHIPPED, pictures), "run: attendant lab zoo --table"


def test_the_picture_shows_what_the_files_say() -> None:
    picture = ZOO / BY_LENGTH
    if not select_translators(SHIPPED):
        pytest.skip("nothing to draw yet")
    assert description(SHIPPED) in picture.read_text(encoding="utf-8"), (
        "run: attendant lab zoo --table"
    )
    assert picture.stat().st_size < 60_000


def test_every_file_is_of_a_recipe() -> None:
    assert {each.name for each in SHIPPED} <= {path.stem for path in ZOO.glob("[!_]*.toml")}


def test_a_row_has_every_figure() -> None:
    text = render([results("luong", 55.25)], {})
    quality, speed = rows(text, "luong")
    assert quality == ["`luong`", "Someone et al. 2015", "2.6 M", "10", "9"] + ["55.2"] * 4 + [
        "1.0",
        "70.0",
        "56.2",
    ]
    paces = ["2,000", "40,000", "1,000", "20,000", "0.75", "0.75"]
    assert speed == ["`luong`", *paces, "2,048", "512", "0"]


@pytest.mark.parametrize("missing", ["training", "bundle", "translation", "speed"])
def test_what_is_not_measured_is_blank(missing: str) -> None:
    partly = results("luong").model_copy(update={missing: None})
    full, part = (render([each], {}) for each in (results("luong"), partly))
    differences = [
        (before, after)
        for known, left in zip(rows(full, "luong"), rows(part, "luong"), strict=True)
        for before, after in zip(known, left, strict=True)
        if before != after
    ]
    assert differences and all(after == "" for _, after in differences)


def test_extremes_are_said_in_words() -> None:
    slow, worse = results("slow"), results("worse")
    assert slow.speed and worse.translation
    pace = slow.speed.fp32.model_copy(update={"engine_over_graph": 0.41})
    slow = slow.model_copy(update={"speed": slow.speed.model_copy(update={"fp32": pace})})
    greedy = worse.translation.int8.greedy.model_copy(update={"bleu": 49.2})
    searches = worse.translation.int8.model_copy(update={"greedy": greedy})
    translation = worse.translation.model_copy(update={"int8": searches})
    worse = worse.model_copy(update={"translation": translation})
    text = render([slow, worse], {})
    assert "32 rows: at least 0.41 (`slow`, fp32)." in text
    assert "int8 changes BLEU by -0.8 to +0.0." in text


def test_rows_are_in_the_order_of_history() -> None:
    actual = [
        results("c", year=2017),
        results("b", languages="en-de", year=2013),
        results("a", year=2014),
    ]
    lines = render(actual, {}).splitlines()
    names = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert names == ["a", "c", "b"] * 2


def test_a_file_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "results" / "luong.json"
    results("luong", by_length=(1.0, 2.0)).save(path)
    assert read_results(path) == results("luong", by_length=(1.0, 2.0))
    assert [each.name for each in path.parent.iterdir()] == ["luong.json"]
    assert read_results(tmp_path / "cho.json") is None


def test_a_table_is_put_between_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- zoo -->\nold\n<!-- /zoo -->\nafter\n")
    rewrite(path, "new")
    assert path.read_text() == "before\n<!-- zoo -->\nnew\n<!-- /zoo -->\nafter\n"
    assert readme_problems(path) == []


@pytest.mark.parametrize(
    "text",
    ["", "<!-- zoo -->", "<!-- /zoo --> <!-- zoo -->", "<!-- zoo --><!-- zoo --><!-- /zoo -->"],
)
def test_a_readme_without_marks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    [problem] = readme_problems(tmp_path / "README.md")
    assert "<!-- zoo -->" in problem


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    actual = [
        results("cho", by_length=(60.0, 40.0), has_attention=False),
        results("luong", by_length=(60.0, 59.0)),
    ]
    for name in ("one.svg", "two.svg"):
        draw(actual, tmp_path / name)
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two
    assert ">cho</text>" in one and ">luong</text>" in one
    assert description(actual) in one


def test_the_table_alone_needs_no_data(tmp_path: Path) -> None:
    results("luong").save(tmp_path / "zoo/results/luong.json")
    (tmp_path / "README.md").write_text("<!-- zoo --><!-- /zoo -->")
    options = ["--recipes", str(tmp_path / "zoo"), "--readme", str(tmp_path / "README.md")]
    result = CliRunner().invoke(zoo, [*options, "--table"])
    assert result.exit_code == 0, result.output
    assert "`luong`" in (tmp_path / "README.md").read_text()


def test_language_models_have_a_table_of_their_own() -> None:
    text = render([results("luong"), prose_results("gru-lm", 1.456)], {})
    assert rows(text, "gru-lm")[0][-3:] == ["1.456", "1.466", "40.0"]
    assert "windows of 64 tokens that advance by 32" in text
    only = render([prose_results("gru-lm")], {})
    assert "BLEU" not in only and "bits per byte" in only


def test_further_seeds_are_told_as_a_spread() -> None:
    actual = [results("luong", 44.0), results("luong-seed-2", 43.0), results("luong-seed-3", 45.5)]
    text = render(actual, {})
    assert "`luong-seed-2` |" not in text
    assert "`luong` has 44.0, 43.0, 45.5 BLEU with 3 seeds, a range of 2.5" in text
    assert select_translators(actual) == [actual[0]]


def test_luongs_scores_and_places_are_one_table() -> None:
    actual = [results("luong", 44.0), results("luong-dot-local-p", 43.0)]
    lines = render(actual, {}).splitlines()
    assert "| dot |  |  | 43.0 |" in lines
    assert "| general | 44.0 |  |  |" in lines
    assert "Luong's score" not in render(actual[:1], {})


def test_what_was_learned_when_is_drawn(tmp_path: Path) -> None:
    actual = [with_curve(results("luong"), 10.0, 30.0), with_curve(prose_results("gru-lm"), None)]
    pictures = draw_all([*actual, with_curve(results("luong-seed-2"), 9.0)], tmp_path)
    picture = pictures["held-out text by minutes of training"].read_text()
    assert ">luong</text>" in picture and ">gru-lm</text>" in picture
    assert ">luong-seed-2</text>" not in picture
    assert "BLEU of held-out captions" in picture and "nats a token" in picture
    assert draw_all([results("luong")], tmp_path).keys() == {"BLEU by the number of source words"}
